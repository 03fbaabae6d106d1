"""The OpenAI-compatible server: a surface that translates HTTP to sessions and back."""
