"""Open sessions as other surfaces see them: watched live, written to, approved."""
