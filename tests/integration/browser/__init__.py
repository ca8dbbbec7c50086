"""Chromium and the page that it opens."""
