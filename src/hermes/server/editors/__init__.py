"""The agent in code editors, over the Agent Client Protocol."""
