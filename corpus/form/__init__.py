"""Train the models of form and place on labelled whole logs and compositions of them."""
