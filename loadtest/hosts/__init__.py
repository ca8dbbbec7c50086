"""Remote machines of a run, reached over SSH: connections, fitness checks and installation of the build."""
