"""Output for continuous integration: verdicts as test cases, and metrics as benchmark feeds."""
