"""The endpoints of the page Talk and of signing in: each module defines a tuple ROUTES."""
