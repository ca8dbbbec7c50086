"""Text from elsewhere, made fit for a terminal."""

import click


def printable(text: str) -> str:
    r"""`text` with every character that a terminal may act on, or hide, as its escape, such as `\x1b`.

    These are control and format characters (Unicode's category C, which writing direction belongs to), and
    separators other than the blank. A backslash stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return `text` with each of its lines made printable."""
    return "\n".join(map(printable, text.split("\n")))


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Write `text` to standard output, or standard error, and a line's end if `nl`.

    Commands print through it all that may hold text of another machine or program.
    """
    click.echo(printable_lines(str(text)), err=err, nl=nl)
