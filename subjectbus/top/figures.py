"""Formatting: numbers as short text, and text from clients as one line without control characters."""

from rich.text import Text

from subjectbus.printable import printable

_SHORT_FROM = 10_000
_THOUSAND = 1000
_KIBI = 1024


def count(number: float) -> str:
    """Return a number as `9,999`, `10.0k`, `1.23M` or `4.56G`: at most seven characters below 10**15."""
    if abs(number) < _SHORT_FROM:
        return f"{number:,.0f}"
    return _scaled(number, _THOUSAND, ("", "k", "M", "G", "T"))


def size(number: float) -> str:
    """Return a number of bytes as `512 B` or `1.23 MiB`."""
    if abs(number) < _KIBI:
        return f"{number:,.0f} B"
    return _scaled(number, _KIBI, (" B", " KiB", " MiB", " GiB", " TiB"))


def clean(text: str, style: str = "") -> Text:
    """Return a text from a client as one line, in which neither markup nor control characters take effect."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    """Return a number with three significant digits and the unit that fits."""
    value, power = float(number), 0
    # A value that would be rounded up to the base gets the next unit.
    while abs(value) >= base - 0.5 and power < len(units) - 1:
        value /= base
        power += 1
    digits = max(0, 3 - len(f"{abs(value):.0f}"))
    return f"{value:.{digits}f}{units[power]}"
