"""What happens before a conversation begins: its session, its folder, trust."""
