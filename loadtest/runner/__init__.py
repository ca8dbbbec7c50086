"""One run of a scenario, from its start to its result."""
