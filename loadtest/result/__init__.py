"""Results of runs: schema, histograms, metrics, thresholds, checks, and published runs for comparison."""
