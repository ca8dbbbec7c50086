"""Text from elsewhere, made fit for a terminal."""


def printable(text: str) -> str:
    r"""`text` with every character that a terminal may act on, or hide, as its escape, such as `\x1b`.

    These are control and format characters (Unicode's category C, which writing direction belongs to), and
    separators other than the blank. A backslash stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
