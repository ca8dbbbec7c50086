"""docs/operations against a real broker: metrics, alerts, dashboard, the systemd unit, the container."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import nats
import pytest

from tests.conftest import require_driver, skip
from tests.nats_client import flush
from tests.prometheus import Family, Prometheus, check, exposition, families
from tests.servers import ROOT, Broker, subjectbus_command, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    StartBroker = Callable[..., Broker]

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning"),
]

OPERATIONS = ROOT / "docs" / "operations"
ALERTS = OPERATIONS / "prometheus-alerts.yml"
LOAD = 3000
LOAD_BYTES = 100
METRIC = re.compile(r"\b(?:subjectbus|process)_[a-z_]+")


def require(command: str, package: str) -> None:
    if shutil.which(command) is None:
        skip(f"{command} is not installed (Debian: apt-get install {package})")


@pytest.fixture
def promtool() -> None:
    require("promtool", "prometheus")


@pytest.fixture
def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    return document


@pytest.fixture(params=["epoll", "uring"])
def exported(request: pytest.FixtureRequest, start_broker: StartBroker) -> dict[str, Family]:
    """Return the metrics that a broker exports, for each driver."""
    require_driver(request.param)
    return families(exposition(start_broker(shards=2, driver=request.param)))


class Documented(NamedTuple):
    """A metric as metrics.md describes it."""

    type: str
    labels: frozenset[str]
    unit: str
    meaning: str
    """Without marks of code and links."""


def documented() -> dict[str, Documented]:
    """Every metric in metrics.md."""
    lines = (ROOT / "docs" / "reference" / "metrics.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    assert all(len(row) == 5 and row[4] for row in rows)
    assert len(rows) == len({row[0] for row in rows}), "a metric is described twice"
    return {
        name.strip("`"): Documented(
            kind,
            frozenset(re.findall(r"`(\w+)`", labels)),
            unit,
            re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", meaning),
        )
        for name, kind, labels, unit, meaning in rows
    }


def test_every_metric_is_documented_and_exported(exported: dict[str, Family]) -> None:
    """The page says of each what the broker says itself, and may say more behind it."""
    described = documented()
    assert {name: (family.type, family.labels) for name, family in exported.items()} == {
        name: (metric.type, metric.labels) for name, metric in described.items()
    }
    for name, family in exported.items():
        metric = described[name]
        help_text = family.help.removesuffix(".")
        assert help_text
        assert metric.meaning.startswith(help_text), name
        unit = name.removesuffix("_total").rpartition("_")[2]
        if unit in ("bytes", "seconds"):
            assert metric.unit == unit, name


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """The queries of a dashboard, its variables replaced as Grafana does."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    replacements = {"$job": "subjectbus", "$instance": ".+", "$__rate_interval": "1m"}
    for name, value in replacements.items():
        found = [expression.replace(name, value) for expression in found]
    assert not any("$" in expression for expression in found)
    return found


def test_alerts_and_dashboard_use_exported_metrics_only(
    exported: dict[str, Family], dashboard: dict[str, Any]
) -> None:
    samples = {sample for family in exported.values() for sample in family.samples}
    variables = [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    texts = [re.sub(r"(?m)^\s*#.*$|^ *summary:.*$|^ *description:.*$", "", ALERTS.read_text()), *variables]
    used = {name for text in [*texts, *expressions(dashboard)] for name in METRIC.findall(text)}
    assert used - samples == set()
    in_dashboard = {name for text in expressions(dashboard) for name in METRIC.findall(text)}
    shown = {name for name, family in exported.items() if family.samples & in_dashboard}
    not_drawn = {"subjectbus_build_info", "process_start_time_seconds"}
    not_drawn |= {"subjectbus_connections_transport_closed_total"}  # the reasons are drawn
    assert exported.keys() - shown == not_drawn


def test_dashboard_is_importable(dashboard: dict[str, Any]) -> None:
    """The data source is a variable everywhere; panels have their own ids, and places that do not overlap."""
    kinds = {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "job": "query", "instance": "query"}
    panels = dashboard["panels"]
    drawn = [panel for panel in panels if panel["type"] != "row"]
    sources = [panel["datasource"]["uid"] for panel in drawn]
    sources += [target["datasource"]["uid"] for panel in drawn for target in panel["targets"]]
    assert set(sources) == {"${datasource}"}
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.usefixtures("promtool")
def test_promtool_accepts_metrics(start_broker: StartBroker) -> None:
    assert check("check", "metrics", text=exposition(start_broker())) == ""


@pytest.mark.usefixtures("promtool")
def test_promtool_accepts_alerts_and_the_queries_of_the_dashboard(
    dashboard: dict[str, Any], tmp_path: Path
) -> None:
    check("check", "rules", ALERTS)
    queries = [{"record": f"query:{n}", "expr": text} for n, text in enumerate(expressions(dashboard))]
    rules = tmp_path / "queries.json"
    rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": queries}]}))
    assert f"{len(queries)} rules found" in check("check", "rules", rules)


@pytest.mark.usefixtures("promtool")
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    cases = (Path(__file__).with_name("alerts-test.yml")).read_text()
    names = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert names == set(re.findall(r'alertname="(\w+)"', cases)), "an alert without a case"
    file = tmp_path / "alerts-test.yml"
    file.write_text(cases.replace("RULES", str(ALERTS)))
    check("test", "rules", file)


async def publish_known_load(broker: Broker, watch: Callable[[], None]) -> None:
    """LOAD messages to two subscribers, half of them over WebSocket; `watch` is called before they leave."""
    clients = [await nats.connect(broker.url(kind), allow_reconnect=False) for kind in ("tcp", "ws")]
    try:
        for client in clients:
            await client.subscribe("load.>")
            await flush(client)
        for client in clients:
            for number in range(LOAD // 2):
                await client.publish(f"load.{number % 7}", b"x" * LOAD_BYTES)
            await flush(client)
        await asyncio.to_thread(watch)
    finally:
        for client in clients:
            await client.close()


async def test_prometheus_counts_a_known_load(start_broker: StartBroker, tmp_path: Path) -> None:
    require("prometheus", "prometheus")
    broker = start_broker(shards=2)
    received = "subjectbus_received_messages_total"

    def watch() -> None:
        for kind in ("tcp", "websocket"):
            only = f'{{transport="{kind}"}}'
            prometheus.wait_for(f"{received}{only}", LOAD / 2)
            prometheus.wait_for(f"subjectbus_received_bytes_total{only}", LOAD / 2 * LOAD_BYTES)
            prometheus.wait_for(f"subjectbus_sent_messages_total{only}", LOAD)
            prometheus.wait_for(f"subjectbus_connections{only}", 1)
        prometheus.wait_for("sum(subjectbus_delivered_messages_total)", 2 * LOAD)

    with Prometheus(tmp_path, broker, ALERTS) as prometheus:
        prometheus.wait_for(f"sum({received})", 0)
        await publish_known_load(broker, watch)
        # Both extrapolate by about a scrape, which among so many is little.
        scrapes = f"min(count_over_time({received}[1m]))"
        wait_until(lambda: (prometheus.query(scrapes) or 0) >= 30, 30, scrapes)
        for expression in ("increase({}[1m])", "rate({}[1m]) * 60"):
            assert prometheus.query(f"sum({expression.format(received)})") == pytest.approx(LOAD, rel=0.08)
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        # Messages in flight begin to wait for SubjectbusConservationBroken, as they should; none must fire.
        assert [alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"] == []
        (target,) = prometheus.ask("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")


@pytest.mark.parametrize("driver", ["epoll", "uring"])
def test_the_driver_is_in_the_build_info(start_broker: StartBroker, driver: str) -> None:
    require_driver(driver)
    text = exposition(start_broker(driver=driver))
    assert re.search(rf'^subjectbus_build_info{{.*driver="{driver}".*}} 1$', text, re.MULTILINE)


async def test_nats_top_shows_our_connections(start_broker: StartBroker) -> None:
    cached = ROOT / ".cache" / "go" / "bin" / "nats-top"
    command = str(cached) if cached.exists() else shutil.which("nats-top")
    if command is None:
        skip("nats-top is not installed: `make setup` installs it if Go is installed")
    broker = start_broker(server_name="watched", shards=2)
    reader = await nats.connect(broker.url("ws"), name="the-reader", allow_reconnect=False)
    writer = await nats.connect(broker.url("tcp"), name="the-writer", allow_reconnect=False)
    await reader.subscribe("news")
    await flush(reader)
    for _ in range(25):
        await writer.publish("news", b"12345678")
    await flush(writer)
    wait_until(lambda: broker.varz()["out_msgs"] == 25)
    host, port = broker.monitor
    # Numbers as they are, sorted by the messages that a client was sent.
    flags = ["-s", host, "-m", str(port), "-o", "-", "-b", "-sort", "msgs_to"]
    done = await asyncio.to_thread(
        subprocess.run, [command, *flags], capture_output=True, text=True, timeout=30, check=False
    )
    await reader.close()
    await writer.close()
    assert done.returncode == 0, done.stderr
    assert re.search(r"In: +Msgs: 25 +Bytes: 200 ", done.stdout), done.stdout
    assert re.search(r"Out: +Msgs: 25 +Bytes: 200 ", done.stdout)
    assert "Connections Polled: 2" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if "the-" in line]
    # HOST CID NAME SUBS PENDING MSGS_TO MSGS_FROM BYTES_TO BYTES_FROM LANG VERSION
    assert [row[2:9] for row in rows] == [
        ["the-reader", "1", "0", "25", "0", "200", "0"],
        ["the-writer", "0", "0", "0", "25", "0", "200"],
    ]
    assert all(row[9] == "python3" for row in rows)


def unit() -> str:
    return (OPERATIONS / "subjectbus.service").read_text()


def test_the_unit_is_accepted(tmp_path: Path) -> None:
    """By systemd-analyze, whose exit status knows warnings, with the command where it is here."""
    require("systemd-analyze", "systemd")
    file = tmp_path / "subjectbus.service"
    text = unit().replace("ExecStart=/opt/subjectbus/bin/subjectbus ", f"ExecStart={subjectbus_command()} ")
    assert text != unit()
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_permits_io_uring() -> None:
    require("systemd-analyze", "systemd")
    filters = re.findall(r"^SystemCallFilter=(.*)$", unit(), re.MULTILINE)
    permitted: set[str] = set()
    for words in filters:
        calls = {call for word in words.lstrip("~").split() for call in system_calls(word)}
        permitted = permitted - calls if words.startswith("~") else permitted | calls
    needed = {"io_uring_setup", "io_uring_enter", "io_uring_register", "unshare", "close_range", "eventfd2"}
    needed |= {"epoll_create1", "epoll_wait", "accept4", "prlimit64", "setrlimit", "getsockopt"}
    assert needed <= permitted
    assert not {"mount", "ptrace", "bpf", "reboot", "setuid"} & permitted


def system_calls(word: str) -> set[str]:
    """Return the system calls of a group, or a single one."""
    if not word.startswith("@"):
        return {word}
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True
    )
    names = [line.strip() for line in listed.stdout.splitlines()[1:]]
    return {call for name in names if name and not name.startswith("#") for call in system_calls(name)}


def test_the_unit_waits_for_a_drain(start_broker: StartBroker) -> None:
    helped = subprocess.run(
        [subjectbus_command(), "serve", "--help"], capture_output=True, text=True, check=True
    )
    defaults = re.findall(r"--lame-duck-\S+ VALUE[^[]*\[default:\s*([\d.]+)", helped.stdout)
    assert len(defaults) == 2
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit(), re.MULTILINE)
    assert float(stop_s) >= sum(map(float, defaults)) + 10


def containerfile(instruction: str) -> list[str]:
    """The words of an instruction in exec form."""
    text = (OPERATIONS / "Containerfile").read_text()
    (form,) = re.findall(rf"^{instruction}\b[^[]*(\[.*\])$", text, re.MULTILINE)
    words: list[str] = json.loads(form)
    return words


def test_the_container_s_command_and_health_check(start_broker: StartBroker) -> None:
    """As they stand in the file, but for the addresses; the check fails once the broker has gone."""
    command = [*containerfile("ENTRYPOINT"), *containerfile("CMD")]
    assert [command[0], command[1]] == ["subjectbus", "serve"]
    flags = dict(zip(command[2::2], command[3::2], strict=True))
    assert {flag: value.rpartition(":")[2] for flag, value in flags.items()} == {
        "--tcp": "4222",
        "--http": "8080",
        "--monitor": "8222",
    }
    broker = start_broker()
    default = "127.0.0.1:8222"
    words = containerfile("HEALTHCHECK")
    assert default in words[-1]
    probe = [word.replace(default, "{}:{}".format(*broker.monitor)) for word in words]
    assert probe[0] == "python"
    probe[0] = sys.executable
    assert subprocess.run(probe, check=False, capture_output=True).returncode == 0, shlex.join(probe)
    broker.stop()
    assert subprocess.run(probe, check=False, capture_output=True).returncode == 1


def test_images_have_plain_names() -> None:
    text = (OPERATIONS / "Containerfile").read_text()
    images = re.findall(r"(?:^FROM |--from=)(\S+)", text, re.MULTILINE)
    assert images
    assert all(re.fullmatch(r"build|[a-z]+:[\w.-]+", image) for image in images)


def test_the_files_are_listed() -> None:
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text()
    listed = set(re.findall(r"\]\(\.\./operations/([\w.-]+)\)", page))
    assert listed == {file.name for file in OPERATIONS.iterdir()}
