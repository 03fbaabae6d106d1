"""What the user sees: the scrollback, the live part below it, and the screen that draws both."""
