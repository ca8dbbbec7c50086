"""Independent clients and servers as counterparts."""
