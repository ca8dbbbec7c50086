"""What continuous integration reads: verdicts as test cases, and metrics as benchmark feeds."""
