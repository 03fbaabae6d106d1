"""Runs of a server that is one of the nodes of a cluster: woken, ordered and handed over."""
