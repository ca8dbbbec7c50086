"""A result: its schema, histograms, objectives, and the published runs to set beside it."""
