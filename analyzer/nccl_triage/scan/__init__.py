"""From blocks of bytes to observations; docs/architecture.md draws the way of a line."""
