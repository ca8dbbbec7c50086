"""Lists of processors, such as "0,2-3"."""

import os
import re

from subjectbus.errors import UsageError

# Four digits are enough for the processors of any machine.
_PART = re.compile(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*")


def parse_cpus(text: str, *, allow_any: bool = False) -> frozenset[int]:
    """Return the processor numbers in a list such as "0,2-3".

    With `allow_any`, processors that this process may not use are accepted: the list is for another machine.

    Raises:
        UsageError: The text is not such a list, or a processor in it is not usable.
    """
    cpus: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise UsageError(f'processor list "{text}": expected numbers and ranges such as 0,2-3')
        cpus.update(range(first, last + 1))
    missing = cpus - (cpus if allow_any else os.sched_getaffinity(0))
    if missing:
        raise UsageError(f'processor list "{text}": processor {min(missing)} is not usable here')
    return frozenset(cpus)
