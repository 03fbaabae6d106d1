"""What `hermes backup`, `import` and `update` do."""
