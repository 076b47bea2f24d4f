"""The rule engine: reads rule files, and finds the signatures and conditions that hold."""
