"""What `hermes auth` does, a file for each thing."""
