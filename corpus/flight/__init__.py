"""Flight recorder dumps of jobs in which one thing was really done wrong, and what analysers make of them."""
