"""Experiments of several runs: repeated runs, comparison, and the search for the capacity."""
