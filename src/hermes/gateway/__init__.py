"""The messengers: a surface that turns chats into sessions, durably, and sessions into messages."""
