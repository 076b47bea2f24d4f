"""The report document: a diagnosis as plain data, the JSON contract that every renderer reads."""
