"""One module per group of endpoints, each with its rows under the name ROUTES."""
