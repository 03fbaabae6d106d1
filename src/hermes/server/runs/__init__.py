"""Runs: turns that need no connected client."""
