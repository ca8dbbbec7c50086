"""Chromium, and the page that it is given."""
