"""Tests of the history of diagnoses."""
