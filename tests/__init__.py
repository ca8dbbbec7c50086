"""Tests of the project: unit, conformance, integration, load test and packaging."""

import sys
from pathlib import Path

# Modules of the benchmarks, which pytest finds by its configuration, for the processes that tests start.
if (_benchmarks := str(Path(__file__).parents[1] / "benchmarks")) not in sys.path:
    sys.path.append(_benchmarks)
