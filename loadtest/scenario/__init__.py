"""Definition of runs: scenarios, rate profiles, targets and hosts files."""
