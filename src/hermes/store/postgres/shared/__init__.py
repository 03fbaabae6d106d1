"""What all nodes of a cluster have in common beside conversations."""
