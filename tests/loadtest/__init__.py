"""Tests of the package loadtest: its parts, and whole runs against the own broker."""
