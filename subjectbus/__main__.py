"""Entry point of `python -m subjectbus`, which is the same as the console script."""

import sys

from subjectbus.cli import main

if __name__ == "__main__":
    sys.exit(main())
