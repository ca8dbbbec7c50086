"""The console's picture, made of what is known: for a screen of so many lines, or for a page without end."""

from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from subjectbus.monitoring import Endpoint, Sample
from subjectbus.top import tables
from subjectbus.top.figures import clean, count, size
from subjectbus.top.rates import Meter

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
"""Orders of the connections by the key that asks for them."""
HELP_KEYS = "?h"
_COMMANDS = {"q": "quit", "?": "keys", "space": "pause", "s": "next order"}

_FRAME_LINES = 7
_TABLE_LINES = 2
"""Of the connections' table: title and heads."""
_LEAST_LINES = 20
_BESIDE_COLUMNS = 150
_KEY_COLUMNS = 20


@dataclass
class State:
    """All that the picture shows."""

    endpoint: Endpoint
    meter: Meter
    sample: Sample
    notes: list[str] = field(default_factory=list)
    """What is unusual: paused, broker lost."""
    shows_keys: bool = False
    """All of them, in place of shards and subjects."""


def page(state: State, width: int) -> Group:
    """Everything, however long it gets."""
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
    """What fits on a screen; on a low one the connections alone."""
    body = height - _FRAME_LINES
    upper: list[RenderableType] = []
    if state.shows_keys:
        upper = _keys(width)[:body]
        body -= len(upper)
    elif height >= _LEAST_LINES:
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
    """Connections that a screen of this height may show at most."""
    return max(1, height - _FRAME_LINES - _TABLE_LINES)


def _header(state: State) -> list[RenderableType]:
    """Five lines."""
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


def _upper(sample: Sample, meter: Meter, body: int, width: int) -> tuple[list[RenderableType], int]:
    """Shards and subjects, and how many lines they take: half of `body`, or all that connections leave."""
    shards, subjects, seconds = sample.varz.shard, sample.subjects.subjects, sample.subjects.seconds
    most = max(body // 2, body - _TABLE_LINES - len(sample.connz.connections))
    if width >= _BESIDE_COLUMNS:
        rows = most - 2
        grid = Table.grid(padding=(0, 4, 0, 0))
        shown = min(rows, max(len(shards), len(subjects)))
        grid.add_row(tables.shards(shards, meter.turns, rows), tables.subjects(subjects[:rows], seconds))
        return [grid, _left_out(len(shards), rows)], shown + 2
    rows = most - 4
    # Lines that are free are the shards' first.
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
    """The line below the shards: empty where all are there."""
    return Text(f"{shown} of {shards} shards, the busiest" if shown < shards else "", "dim")


def _connections(state: State, rows: int, width: int) -> list[RenderableType]:
    connz, sort = state.sample.connz, state.sample.sort
    shown = connz.connections[: max(0, rows)]
    title = Text.assemble((f"{len(shown):,} of {connz.total:,} connections", "bold"), f" by {sort}")
    clients = [(client, state.meter.clients.get(client.cid)) for client in shown]
    return [title, tables.connections(clients, sort, width)]


def _help(width: int) -> Text:
    """The last line: all keys, or where they do not fit those that are no orders."""
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
    """All keys and what they do, line by line, and an empty one."""
    meanings = {**_COMMANDS, **{key: f"by {order}" for key, order in KEYS.items()}}
    cells = [
        Text.assemble((f"{key:>5}", "bold"), f" {meaning:<{_KEY_COLUMNS - 6}}")
        for key, meaning in meanings.items()
    ]
    across = max(1, width // _KEY_COLUMNS)
    lines = [Text().join(cells[first : first + across]) for first in range(0, len(cells), across)]
    return [*lines, Text()]
