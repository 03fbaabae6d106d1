"""The interactive terminal: a prompt at the bottom, and a scrollback that is only ever added to."""
