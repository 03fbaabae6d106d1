"""Plays recorded sessions again, and compares."""
