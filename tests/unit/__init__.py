"""Tests of the package subjectbus, without a running server where none is needed."""
