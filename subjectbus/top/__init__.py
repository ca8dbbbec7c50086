"""Live console of a running broker in the terminal: the command `subjectbus top`."""
