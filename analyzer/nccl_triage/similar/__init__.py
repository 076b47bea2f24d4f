"""Public threads about failures that look like this one: the shipped index, the search in it, and what is said of a find."""
