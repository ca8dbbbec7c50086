"""Escaping of text from other machines or programs, so that it cannot control a terminal."""

import click


def printable(text: str) -> str:
    r"""Return the text with each character that a terminal may act on or hide as an escape, such as `\x1b`.

    These characters are control and format characters (Unicode's category C, which includes those for the
    writing direction) and separators other than the space. A backslash is not changed.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return the text with each of its lines made printable."""
    return "\n".join(map(printable, text.split("\n")))


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, made printable, to standard output, or to standard error if `err`.

    Commands use this function for each text that may come from another machine or program. `nl` adds a line
    end.
    """
    click.echo(printable_lines(str(text)), err=err, nl=nl)
