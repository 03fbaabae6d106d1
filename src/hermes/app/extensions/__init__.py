"""What others add to the agent: plugins, hooks, and subagents it starts itself."""
