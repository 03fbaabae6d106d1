"""What `hermes batch` shows and how it runs."""
