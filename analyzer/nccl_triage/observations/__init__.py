"""What is known of the input, as events and tables of bounded size that merge."""
