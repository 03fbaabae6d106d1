"""Many prompts at once, each exactly once: datasets, runs, trajectories."""
