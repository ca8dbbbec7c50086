"""Questions that take several runs."""
