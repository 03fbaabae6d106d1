"""What the user types: keys, the text being edited, its history and completion, and the message."""
