"""Copies of the database: backups, and what a damaged one still holds."""
