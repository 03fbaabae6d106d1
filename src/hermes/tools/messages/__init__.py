"""Tools that write to chats."""
