"""Kinds of losses, of which a table shows those that occurred."""

from collections.abc import Sequence

from loadtest.result.figures import LOSS_UNIT, Figure
from loadtest.result.repeated import FigureSpread

LOSSES_NOTE = "Kinds of losses that never occurred are left out."


def is_without_loss(figure: Figure, spreads: Sequence[FigureSpread | None]) -> bool:
    """Whether the figure counts losses and there was none."""
    return figure.unit == LOSS_UNIT and not any(spread.max for spread in spreads if spread is not None)
