"""The wheel, opened and installed."""
