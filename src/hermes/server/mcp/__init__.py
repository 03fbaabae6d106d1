"""The agent as an MCP server: its conversations, its open questions, and the agent itself."""
