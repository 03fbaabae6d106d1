"""What `hermes model` does, a file for each thing."""
