"""The machines of a run, over SSH: connections, what they are fit for, and the same build on all."""
