"""The endpoints of the operator's pages: each module defines a tuple ROUTES."""
