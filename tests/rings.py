"""Fault that clients cannot cause: the io_uring instances of this process fail."""

import os
import sys
import threading
from pathlib import Path

from subjectbus.cli import main


def break_rings() -> None:
    """Put another file in the place of every io_uring of this process."""
    other = os.open(os.devnull, os.O_RDONLY)
    for link in Path("/proc/self/fd").iterdir():
        try:
            is_ring = str(link.readlink()) == "anon_inode:[io_uring]"
        except FileNotFoundError:
            continue
        if is_ring:
            os.dup2(other, int(link.name), inheritable=False)
    os.close(other)


def break_rings_when_told() -> None:
    """Wait for a line on standard input, and break them then."""
    sys.stdin.readline()
    break_rings()


if __name__ == "__main__":
    threading.Thread(target=break_rings_when_told, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
