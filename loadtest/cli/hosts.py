"""`subjectbus loadtest hosts`: the machines of a hosts file."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from loadtest.hosts.check import HostReport, check_hosts
from loadtest.hosts.facts import Facts
from loadtest.hosts.identity import build_id
from loadtest.report.terminal import Screen
from loadtest.scenario.inventory import load_inventory
from loadtest.scenario.kinds import AnyScenario, TransportsScenario
from loadtest.scenario.load import load_scenario
from subjectbus import __version__
from subjectbus.printable import echo, printable

_PLAIN_WIDTH = 140
_FIT, _UNFIT, _UNREACHABLE = 0, 1, 3
_BUILDS = {"there": "there", "installed": "installed now", "missing": "missing", None: ""}


@click.group()
def hosts() -> None:
    """Look at the machines of a hosts file."""


@hosts.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="HOSTS.toml")
@click.option(
    "--install/--no-install",
    "may_install",
    default=True,
    help="Install this build where it is missing, in a virtual environment under ~/.cache/subjectbus. [yes]",
)
@click.option(
    "--scenario", metavar="NAME", help="Also say where this scenario needs more ports or open files."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def check(
    file: Path, *, may_install: bool, scenario: str | None, overrides: tuple[str, ...], as_json: bool
) -> int:
    """Check that every host can take part in a run.

    Exit status: 0 all of them can, 1 one of them can not, 2 unusable arguments or hosts file, 3 one of them
    cannot be reached.
    """
    if overrides and scenario is None:
        raise click.UsageError("--set goes with --scenario")
    inventory = load_inventory(file)
    scenarios = _runs(scenario, overrides) if scenario is not None else []
    reports = check_hosts(inventory, scenarios, lambda text: echo(text, err=True), may_install=may_install)
    if as_json:
        echo(_document(reports))
    else:
        _show(reports)
    if not all(report.is_reachable for report in reports):
        return _UNREACHABLE
    return _FIT if all(report.is_fit for report in reports) else _UNFIT


def _runs(name: str, overrides: tuple[str, ...]) -> Sequence[AnyScenario]:
    plan = load_scenario(name, overrides)
    return plan.runs() if isinstance(plan, TransportsScenario) else [plan]


def _document(reports: Sequence[HostReport]) -> str:
    document = {
        "schema": 1,
        "build": build_id(),
        "version": __version__,
        "fit": all(report.is_fit for report in reports),
        "hosts": [{**msgspec.to_builtins(report), "fit": report.is_fit} for report in reports],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _show(reports: Sequence[HostReport]) -> None:
    screen = Screen(highlight=False)
    if not screen.is_terminal:
        screen = Screen(highlight=False, width=_PLAIN_WIDTH)
    screen.print(_table(reports))
    for report in reports:
        for text in report.problems:
            screen.print(_line(report, "error", "bold red", text), soft_wrap=True)
        for text in report.warnings:
            screen.print(_line(report, "warning", "yellow", text), soft_wrap=True)
        if report.is_fit:
            screen.print(_line(report, "fit", "green", ", ".join(report.roles)), soft_wrap=True)


def _line(report: HostReport, verdict: str, style: str, text: str) -> Text:
    host = f"{report.name} ({report.address})"
    return Text.assemble(f"{printable(host)}: ", (verdict, style), f": {printable(text)}")


def _table(reports: Sequence[HostReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"subjectbus {__version__}, build {build_id()}")
    for head in ("host", "roles", "build", "Python", "kernel", "io_uring"):
        table.add_column(head, overflow="fold")
    for head in ("cores", "memory", "open files", "ports", "clock"):
        table.add_column(head, justify="right")
    for report in reports:
        cells = (report.name, ", ".join(report.roles), _BUILDS[report.build])
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *_cells(report.facts))))
    return table


def _cells(facts: Facts | None) -> tuple[str, ...]:
    if facts is None:
        return ("",) * 8
    usable = len(facts.cpus)
    return (
        facts.python,
        facts.kernel,
        {True: "yes", False: "no", None: "?"}[facts.io_uring],
        f"{facts.cores}" if usable == facts.cores else f"{usable} of {facts.cores}",
        f"{facts.memory_bytes / 2**30:.1f} GiB",
        f"{facts.descriptors:,}" if facts.descriptors >= 0 else "unlimited",
        f"{facts.port_count:,}",
        f"{facts.clock.offset_s * 1e3:+.1f} ± {facts.clock.error_s * 1e3:.1f} ms",
    )
