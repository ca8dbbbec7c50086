"""Attacks of one client on the others, each measured by a client that behaves well."""
