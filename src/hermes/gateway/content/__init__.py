"""What messages are made of: text in parts, its markup, files."""
