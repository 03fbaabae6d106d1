"""The tables that both databases have, in SQL that both understand."""
