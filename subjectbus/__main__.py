"""`python -m subjectbus` is the console script."""

import sys

from subjectbus.cli import main

if __name__ == "__main__":
    sys.exit(main())
