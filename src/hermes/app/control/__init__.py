"""What the operator checks, tests and changes: the same for commands and for pages."""
