"""Requests to an endpoint beside the model calls of a conversation."""
