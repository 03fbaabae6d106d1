"""The gateway as a program: its process, the servers it hosts, its setup and its unit."""
