"""One run of a scenario: who does what when, watched while it goes."""
