"""Tables of the console: shards, connections, subjects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from subjectbus.monitoring import Connection, HotSubject, Shard
from subjectbus.top.figures import clean, count, size

_HEAD = "bold cyan"
_SORTED = "bold black on cyan"
_HIGH_PERCENT = 85
_GAP = 2

Client = tuple[Connection, tuple[float, float] | None]
"""Connection with its messages per second to and from the client. The rates are None if not known."""


@dataclass(frozen=True)
class _Column:
    """Column of the table of connections."""

    head: str
    width: int
    rank: int
    """Importance: columns of lower rank are left out first if the terminal is narrow."""
    cell: Callable[[Client], str | Text]
    """Function that makes the text of a cell."""
    sort: str = ""
    """Order, one of SORTS, that sorts by this column; "" for none."""
    is_text: bool = False
    """Whether cells are text, which is left-aligned, rather than numbers."""


def _rate(client: Client, which: int) -> str:
    rates = client[1]
    return "-" if rates is None else count(rates[which])


def _address(client: Client) -> Text:
    ip, port = client[0].ip, client[0].port
    return clean(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}")


_COLUMNS = (
    _Column("CID", 7, 12, lambda row: str(row[0].cid), "cid"),
    _Column("NAME", 12, 11, lambda row: clean(row[0].name or "-"), is_text=True),
    _Column("ADDRESS", 21, 6, _address, is_text=True),
    _Column("TYPE", 9, 5, lambda row: clean(row[0].type), is_text=True),
    _Column("SUBS", 6, 9, lambda row: count(row[0].subscriptions), "subs"),
    _Column("PENDING", 8, 13, lambda row: size(row[0].pending_bytes), "pending"),
    _Column("TO/S", 6, 8, lambda row: _rate(row, 0)),
    _Column("FROM/S", 6, 7, lambda row: _rate(row, 1)),
    _Column("MSGS_TO", 7, 15, lambda row: count(row[0].out_msgs), "msgs_to"),
    _Column("MSGS_FROM", 9, 14, lambda row: count(row[0].in_msgs), "msgs_from"),
    _Column("BYTES_TO", 8, 4, lambda row: size(row[0].out_bytes), "bytes_to"),
    _Column("BYTES_FROM", 10, 3, lambda row: size(row[0].in_bytes), "bytes_from"),
    _Column("UPTIME", 8, 10, lambda row: clean(row[0].uptime), "uptime"),
    _Column("IDLE", 6, 2, lambda row: clean(row[0].idle), "idle"),
    _Column("SHARD", 5, 1, lambda row: str(row[0].shard)),
    _Column(
        "CLIENT", 16, 0, lambda row: clean(f"{row[0].lang} {row[0].version}".strip() or "-"), is_text=True
    ),
)


def connections(clients: Sequence[Client], sort: str, width: int) -> Table:
    """Return a table with one row for each client and as many columns as fit, including the sorted one."""
    table = _table()
    shown = _fitting(sort, width)
    for column in shown:
        style = _SORTED if column.sort == sort else _HEAD
        table.add_column(
            Text(column.head, style),
            justify="left" if column.is_text else "right",
            min_width=min(column.width, len(column.head)) if column.is_text else column.width,
            max_width=2 * column.width if column.is_text else None,
            no_wrap=True,
        )
    for client in clients:
        table.add_row(*(column.cell(client) for column in shown))
    return table


def _fitting(sort: str, width: int) -> list[_Column]:
    left, shown = width + _GAP, []
    for column in sorted(_COLUMNS, key=lambda column: (column.sort == sort, column.rank), reverse=True):
        left -= column.width + _GAP
        if left < 0:
            break
        shown.append(column)
    return [column for column in _COLUMNS if column in shown]


def shards(rows: Sequence[Shard], turns: dict[int, float], limit: int | None = None) -> Table:
    """Return a table with one row for each shard.

    Args:
        rows: Shards of the broker.
        turns: Turns per second of each shard, by its index.
        limit: Largest number of rows; if there are more shards, the busiest are shown. None for no limit.
    """
    table = _table("SHARD", "CONNECTIONS", "CPU %", "TURNS/S", "PENDING", "MAILBOX", "ACCEPT", "DESCRIPTORS")
    if limit is not None and len(rows) > limit:
        rows = sorted(rows, key=lambda shard: shard.cpu_percent, reverse=True)[:limit]
    for shard in rows:
        busy = "bold red" if shard.cpu_percent >= _HIGH_PERCENT else ""
        places = shard.descriptors
        full = "bold red" if 100 * places.used >= _HIGH_PERCENT * places.limit > 0 else ""
        table.add_row(
            str(shard.index),
            count(shard.connections),
            Text(f"{shard.cpu_percent:.1f}", busy),
            count(turns[shard.index]) if shard.index in turns else "-",
            size(shard.pending_bytes),
            count(shard.mailbox),
            count(shard.accept_queue.tcp + shard.accept_queue.http),
            Text(f"{count(places.used)}/{count(places.limit)}", full),
        )
    return table


def subjects(rows: Sequence[HotSubject], seconds: float) -> Table:
    """Return a table with one row for each of the busiest subjects, with rates averaged over `seconds`."""
    table = _table("MSGS/S", "BYTES/S", "SHARE")
    table.add_column(Text(f"HOTTEST SUBJECTS over the last {seconds:.0f} s", _HEAD), no_wrap=True)
    for row in rows:
        table.add_row(count(row.msgs_per_s), size(row.bytes_per_s), f"{row.share:.0%}", clean(row.subject))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), collapse_padding=True)
    for head in heads:
        table.add_column(Text(head, _HEAD), justify="right", no_wrap=True)
    return table
