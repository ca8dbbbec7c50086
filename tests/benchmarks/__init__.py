"""The attacks of the benchmark suite `hostile`, and how its figures are worked out."""
