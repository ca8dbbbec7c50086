"""What machines, processes and servers use, and what servers say of themselves."""
