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

_FRAME_LINES = 7
_LEAST_LINES = 20
_BESIDE_COLUMNS = 150


@dataclass
class State:
    """All that the picture shows."""

    endpoint: Endpoint
    meter: Meter
    sample: Sample
    notes: list[str] = field(default_factory=list)
    """What is unusual: paused, broker lost."""


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
        tables.subjects(sample.subjects.subjects),
    )


def screen(state: State, width: int, height: int) -> Group:
    """What fits on a screen; on a low one the connections alone."""
    sample = state.sample
    body = height - _FRAME_LINES
    upper: list[RenderableType] = []
    if height >= _LEAST_LINES:
        upper, used = _upper(sample, state.meter, body // 2, width)
        body -= used
    middle = _connections(state, body - 2, width)
    status = [clean("; ".join(state.notes), "bold yellow")] if state.notes else [Text()]
    missing = max(0, body - 2 - len(sample.connz.connections))
    return Group(*_header(state), *status, *upper, *middle, *([Text()] * missing), _help(width))


def rows_of(height: int) -> int:
    """Connections that a screen of this height may show at most."""
    return max(1, height - _FRAME_LINES - 2)


def _header(state: State) -> list[RenderableType]:
    """Five lines."""
    varz, rates = state.sample.varz, state.meter.rates
    title = Text.assemble(
        ("subjectbus ", "bold"),
        clean(varz.version, "bold"),
        "  ",
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


def _upper(sample: Sample, meter: Meter, most: int, width: int) -> tuple[list[RenderableType], int]:
    """Shards and subjects on at most `most` lines, and how many lines those are."""
    shards, subjects = sample.varz.shard, sample.subjects.subjects
    if width >= _BESIDE_COLUMNS:
        rows = most - 2
        grid = Table.grid(padding=(0, 4, 0, 0))
        shown = min(rows, max(len(shards), len(subjects)))
        grid.add_row(tables.shards(shards, meter.turns, rows), tables.subjects(subjects[:rows]))
        return [grid, Text()], shown + 2
    below = min(len(subjects), max(1, (most - 4) // 2))
    above = min(len(shards), most - 4 - below)
    upper: list[RenderableType] = [tables.shards(shards, meter.turns, above), Text()]
    return [*upper, tables.subjects(subjects[:below]), Text()], above + below + 4


def _connections(state: State, rows: int, width: int) -> list[RenderableType]:
    connz, sort = state.sample.connz, state.sample.sort
    shown = connz.connections[: max(0, rows)]
    title = Text.assemble((f"{len(shown):,} of {connz.total:,} connections", "bold"), f" by {sort}")
    clients = [(client, state.meter.clients.get(client.cid)) for client in shown]
    return [title, tables.connections(clients, sort, width)]


def _help(width: int) -> Text:
    """The last line."""
    keys = {"q": "quit", "space": "pause", "s": "next order", **KEYS}
    text = Text(style="reverse", no_wrap=True, overflow="ellipsis")
    for key, meaning in keys.items():
        text.append(key, "bold").append(f" {meaning}  ")
    text.pad_right(max(0, width - len(text)))
    return text
