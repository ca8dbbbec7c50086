"""Tests of the benchmarks: attacks of the suite `hostile`, its figures, and the mutants."""
