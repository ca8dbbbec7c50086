"""Presentation of results: console, pages, charts, files."""
