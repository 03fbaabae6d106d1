"""Speech made by a model."""
