"""Tests of load tests across hosts."""
