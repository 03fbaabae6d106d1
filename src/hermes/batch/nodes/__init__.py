"""Runs whose items are answered by the nodes of a cluster."""
