"""Nodes that share a database; imported only where one is configured."""
