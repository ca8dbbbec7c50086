"""`subjectbus top`: the live console of a running broker, in the terminal."""
