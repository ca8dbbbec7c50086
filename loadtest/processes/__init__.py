"""The processes of a run: how they start, are spoken to, and always end."""
