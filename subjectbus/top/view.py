"""Layout of the console: for a screen of a given height, or for a page of any length."""

from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from subjectbus.monitoring import Endpoint, Sample
from subjectbus.top import tables
from subjectbus.top.figures import clean, count, size
from subjectbus.top.rates import RateMeter

KEYS = {
    "c": "cid",
    "a": "start",
    "u": "subs",
    "p": "pending",
    "o": "msgs_to",
    "i": "msgs_from",
    "O": "bytes_to",
    "I": "bytes_from",
    "l": "last",
    "d": "idle",
    "t": "uptime",
}
"""Order of the connections that each key selects."""
HELP_KEYS = "?h"
_COMMANDS = {"q": "quit", "?": "keys", "space": "pause", "s": "next order"}

_FRAME_LINES = 7
_TABLE_LINES = 2
"""Lines above the rows of the table of connections: title and heads."""
_MIN_LINES_FOR_SHARDS = 20
_MIN_COLUMNS_FOR_TWO_TABLES = 150
_KEY_COLUMNS = 20


@dataclass
class State:
    """Data that the console shows."""

    endpoint: Endpoint
    meter: RateMeter
    sample: Sample
    notes: list[str] = field(default_factory=list)
    """Notices about the console's state: paused, broker not reachable."""
    shows_keys: bool = False
    """Whether the list of keys is shown in place of shards and subjects."""


def page(state: State, width: int) -> Group:
    """Return all tables with all their rows."""
    sample = state.sample
    return Group(
        *_header(state),
        Text(),
        tables.shards(sample.varz.shard, state.meter.turns),
        Text(),
        *_connections(state, len(sample.connz.connections), width),
        Text(),
        tables.subjects(sample.subjects.subjects, sample.subjects.seconds),
    )


def screen(state: State, width: int, height: int) -> Group:
    """Return what fits on a screen; a screen below 20 lines shows connections only."""
    body = height - _FRAME_LINES
    upper: list[RenderableType] = []
    if state.shows_keys:
        upper = _keys(width)[:body]
        body -= len(upper)
    elif height >= _MIN_LINES_FOR_SHARDS:
        upper, used = _upper(state.sample, state.meter, body, width)
        body -= used
    middle: list[RenderableType] = []
    if body >= _TABLE_LINES:
        body -= _TABLE_LINES
        middle = _connections(state, body, width)
        body -= min(body, len(state.sample.connz.connections))
    status = [clean("; ".join(state.notes), "bold yellow")] if state.notes else [Text()]
    return Group(*_header(state), *status, *upper, *middle, *([Text()] * body), _help(width))


def rows_of(height: int) -> int:
    """Return the largest number of connections that a screen of this height can show, at least 1."""
    return max(1, height - _FRAME_LINES - _TABLE_LINES)


def _header(state: State) -> list[RenderableType]:
    """Return the five lines at the top: title, totals and rates."""
    varz, rates = state.sample.varz, state.meter.rates
    title = Text.assemble(
        ("subjectbus ", "bold"),
        clean(varz.version, "bold"),
        "  ",
        ("draining  " if varz.draining else "", "bold red"),
        clean(varz.server_name, "bold cyan"),
        "  ",
        clean(str(state.endpoint)),
        "  up ",
        clean(varz.uptime),
        "  ",
        clean(f"{varz.driver}, {len(varz.shard)} shards"),
        no_wrap=True,
        overflow="ellipsis",
    )
    kinds = {kind: transport.connections for kind, transport in varz.transports.items()}
    flow_in = f"{count(rates.in_msgs_per_s)}/s  {size(rates.in_bytes_per_s)}/s" if rates else "-"
    flow_out = f"{count(rates.out_msgs_per_s)}/s  {size(rates.out_bytes_per_s)}/s" if rates else "-"
    dropped = f"{count(varz.dropped)}  {count(rates.dropped_per_s)}/s" if rates else count(varz.dropped)
    clients = f"{count(varz.connections)} of {count(varz.max_connections)}"
    slow = Text(count(varz.slow_consumers), "bold red" if varz.slow_consumers else "")
    lost = Text(dropped, "bold red" if rates and rates.dropped_per_s else "")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for number in range(6):
        grid.add_column(style="" if number % 2 else "dim", no_wrap=True)
    grid.add_row("connections", clients, " in", flow_in, " cpu", f"{varz.cpu:.1f} %")
    grid.add_row("websocket", _kind(kinds, "websocket"), " out", flow_out, " memory", size(varz.mem))
    grid.add_row("tcp", _kind(kinds, "tcp"), " slow consumers", slow, " pending", size(varz.pending_bytes))
    grid.add_row("http", _kind(kinds, "http"), " dropped", lost, " subs", count(varz.subscriptions))
    return [title, grid]


def _kind(kinds: dict[str, int], kind: str) -> str:
    return count(kinds[kind]) if kind in kinds else "-"


def _upper(sample: Sample, meter: RateMeter, body: int, width: int) -> tuple[list[RenderableType], int]:
    """Return the tables of shards and subjects, and the number of their lines.

    They take at most half of the `body` lines, or the lines that the connections do not need.
    """
    shards, subjects, seconds = sample.varz.shard, sample.subjects.subjects, sample.subjects.seconds
    limit = max(body // 2, body - _TABLE_LINES - len(sample.connz.connections))
    if width >= _MIN_COLUMNS_FOR_TWO_TABLES:
        rows = limit - 2
        grid = Table.grid(padding=(0, 4, 0, 0))
        shown = min(rows, max(len(shards), len(subjects)))
        grid.add_row(tables.shards(shards, meter.turns, rows), tables.subjects(subjects[:rows], seconds))
        return [grid, _left_out(len(shards), rows)], shown + 2
    rows = limit - 4
    # Free lines go to the shards first.
    above = min(len(shards), rows - min(len(subjects), max(1, (body // 2 - 4) // 2)))
    below = min(len(subjects), rows - above)
    upper: list[RenderableType] = [
        tables.shards(shards, meter.turns, above),
        _left_out(len(shards), above),
        tables.subjects(subjects[:below], seconds),
        Text(),
    ]
    return upper, above + below + 4


def _left_out(shards: int, shown: int) -> Text:
    """Return the line below the shards: a note if some are left out, or else an empty line."""
    return Text(f"{shown} of {shards} shards, the busiest" if shown < shards else "", "dim")


def _connections(state: State, rows: int, width: int) -> list[RenderableType]:
    connz, sort = state.sample.connz, state.sample.sort
    shown = connz.connections[: max(0, rows)]
    title = Text.assemble((f"{len(shown):,} of {connz.total:,} connections", "bold"), f" by {sort}")
    clients = [(client, state.meter.clients.get(client.cid)) for client in shown]
    return [title, tables.connections(clients, sort, width)]


def _help(width: int) -> Text:
    """Return the last line: all keys, or if they do not fit, the keys that do not select an order."""
    every = _line({**_COMMANDS, **KEYS})
    text = every if len(every) <= width else _line(_COMMANDS)
    text.pad_right(max(0, width - len(text)))
    return text


def _line(keys: dict[str, str]) -> Text:
    text = Text(style="reverse", no_wrap=True, overflow="ellipsis")
    for number, (key, meaning) in enumerate(keys.items()):
        text.append("  " if number else "").append(key, "bold").append(f" {meaning}")
    return text


def _keys(width: int) -> list[RenderableType]:
    """Return lines that list all keys with their effect, and an empty line."""
    meanings = {**_COMMANDS, **{key: f"by {order}" for key, order in KEYS.items()}}
    cells = [
        Text.assemble((f"{key:>5}", "bold"), f" {meaning:<{_KEY_COLUMNS - 6}}")
        for key, meaning in meanings.items()
    ]
    across = max(1, width // _KEY_COLUMNS)
    lines = [Text().join(cells[first : first + across]) for first in range(0, len(cells), across)]
    return [*lines, Text()]
