"""A small linear model over the whole log: its vote is one weighed, explained piece of evidence among others."""
