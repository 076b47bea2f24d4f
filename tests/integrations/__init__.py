"""The recipes of docs/integrations, run as a reader would run them."""
