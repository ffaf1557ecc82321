"""Where third-party networks come from, one kind per file; `rood.models.load` chooses the file."""
