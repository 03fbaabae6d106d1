"""People in chats: who may do what, how strangers are let in, and who the owner is."""
