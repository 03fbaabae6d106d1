"""The process of the gateway: its lock and state, its connections, its database."""
