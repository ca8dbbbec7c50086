"""Conformance of the protocols, byte by byte, on raw sockets."""
