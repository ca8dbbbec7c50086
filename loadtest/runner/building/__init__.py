"""The result of a run, built from all data that the run has collected."""
