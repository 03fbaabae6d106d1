"""The endpoints of the dashboard: each module defines a tuple ROUTES."""
