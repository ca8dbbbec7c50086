"""The wire, byte by byte, on raw sockets."""
