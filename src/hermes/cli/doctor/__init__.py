"""What `hermes doctor` looks at."""
