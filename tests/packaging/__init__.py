"""Tests of the wheels and of the container image."""
