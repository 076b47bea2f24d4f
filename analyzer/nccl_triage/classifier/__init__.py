"""The place of the trained classifier: features, prediction, training. Nothing is built yet."""
