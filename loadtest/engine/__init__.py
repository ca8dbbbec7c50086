"""The load engine in a process of its own, and what it and the run say to each other."""
