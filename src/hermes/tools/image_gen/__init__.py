"""Pictures made by a model."""
