"""Usage of machines, processes and servers, and the counters of servers."""
