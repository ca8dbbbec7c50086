"""Tests of the project: unit, conformance, integration, load test and packaging."""
