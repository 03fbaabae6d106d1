"""The checks of `hermes doctor`."""
