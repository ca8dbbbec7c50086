"""Command `subjectbus top`."""

import json
import math
import shutil
import sys
import time

import click
from rich.console import Console

from subjectbus.errors import UsageError
from subjectbus.monitoring import DEFAULT_URL, MOST_CONNECTIONS, SORTS, Endpoint, Monitor, Sample
from subjectbus.printable import echo
from subjectbus.top import view
from subjectbus.top.live import Top, require_terminal
from subjectbus.top.rates import RateMeter, Rates
from subjectbus.top.view import State

_ONCE_CONNECTIONS = 20
_PIPE_COLUMNS = 160


def _require_number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """Refuse NaN, which click accepts as being within every range."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds.")
    return value


@click.command(short_help="Show a running broker live.")
@click.argument("url", default=DEFAULT_URL)
@click.option("--once", is_flag=True, help="Print one snapshot as text and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print a JSON object instead of text.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    callback=_require_number,
    default=1.0,
    metavar="SECONDS",
    help="Seconds between two snapshots, over which rates are measured.  [default: 1]",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="msgs_to",
    metavar="KEY",
    help=f"Order of the connections, one of {', '.join(SORTS)}.  [default: msgs_to]",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_CONNECTIONS),
    metavar="N",
    help=f"Number of connections to show.  [default: as many as fit, {_ONCE_CONNECTIONS} with --once]",
)
def top(url: str, *, once: bool, as_json: bool, interval_s: float, sort: str, limit: int | None) -> None:
    """Show a running broker live: rates, shards, connections, subjects.

    URL is the address of the broker's monitor, or its HOST:PORT alone. The default is http://127.0.0.1:8222.
    Press ? to see all keys.

    Exit status: 0 ended by q or Ctrl-C, or printed with --once, 2 unusable arguments, 3 the broker did not
    answer.
    """
    if as_json and not once:
        raise UsageError("--json can only be used with --once")
    monitor = Monitor(url)
    if not once:
        console = require_terminal()
        Top(monitor, console, sort=sort, limit=limit, interval_s=interval_s).run()
        return
    meter = RateMeter(min_interval_s=0.0)
    meter.add(monitor.sample(sort=sort, limit=limit or _ONCE_CONNECTIONS))
    time.sleep(interval_s)
    sample = monitor.sample(sort=sort, limit=limit or _ONCE_CONNECTIONS)
    meter.add(sample)
    if as_json:
        echo(_json(monitor.endpoint, sample, meter.rates))
    else:
        echo(_text(State(monitor.endpoint, meter, sample)))


def _json(endpoint: Endpoint, sample: Sample, rates: Rates | None) -> str:
    """Return one line of ASCII, so that characters from clients reach a terminal only as escapes."""
    answer = {
        "url": str(endpoint),
        "rates": None if rates is None else {name: getattr(rates, name) for name in rates.__struct_fields__},
        "varz": sample.documents["varz"],
        "connections": sample.documents["connz"]["connections"],
        "subjects": sample.documents["subjects"]["subjects"],
    }
    return json.dumps(answer)


def _text(state: State) -> str:
    """Return the snapshot as text, as wide as the terminal, or 160 columns without a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    console = Console(force_terminal=False, color_system=None, width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(view.page(state, width))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
