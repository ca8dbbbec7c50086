"""What is to be run: scenarios, targets, hosts."""
