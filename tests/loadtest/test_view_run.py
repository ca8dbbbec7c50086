"""Whole runs compared with the broker's counters: both sides agree, or the difference is reported."""

import json
import selectors
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import psutil
import pytest

from loadtest import read_result
from loadtest.workers.child import PYTHON
from tests.loadtest import commands
from tests.loadtest.monitors import FakeMonitor, answer, hanging, saying, telling, trickling
from tests.servers import wait_until
from tests.wire import Wire

SHORT = {"warmup_s": 0.3, "duration_s": 1, "timeout_s": 5, "users": 40, "max_send_lag_ms": 0}
MESSAGES = ("connected sessions", "messages in", "messages out", "payload in", "payload out")
OPENED = (*MESSAGES, "connections opened")
ACCOUNTED = (*OPENED, "connections closed for a reason, or left")
CHURNED = (*ACCOUNTED, "connections closed by the load")
#: What each kind of run is, and the counts that it has.
RUNS = {
    "churn-ws": (
        "autocomplete",
        {"rate": 400, "churn_rate": 30},
        CHURNED,
    ),
    "churn-tcp": (
        "autocomplete",
        {"transport": "tcp", "outstanding": 20, "rate": 0, "churn_rate": 30, "requestors": 2, "threads": 2},
        CHURNED,
    ),
    "rest": ("autocomplete", {"transport": "rest", "rate": 400}, ACCOUNTED),
    "rest-new": (
        "autocomplete",
        {"transport": "rest-new", "rate": 400, "sweep": "true"},
        (*ACCOUNTED, "connections closed after an answer"),
    ),
    "broadcast": (
        "broadcast",
        {"rate": 100, "subjects": 7, "publishers": 3, "processes": 2, "message_bytes": 100},
        CHURNED,
    ),
    "http-byte": ("http-byte", {"outstanding": 40}, ACCOUNTED),
}


def command(folder, scenario, *arguments, **changes):
    # No objective of speed: the machine may be busy with other tests.
    changes = {"thresholds": '["achieved.errors == 0", "achieved.timed_out == 0"]', **SHORT, **changes}
    return commands.run_command(folder, scenario, *arguments, **changes)


def run(folder, scenario, *arguments, **changes):
    return subprocess.run(
        command(folder, scenario, *arguments, **changes),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def target_of(server, changes):
    """The target's address as the transport needs it."""
    transport = changes.get("transport", "ws")
    return server.url({"tcp": "tcp", "ws": "ws"}.get(transport, "http"))


def assert_exact(result, names):
    assert tuple(row.name for row in result.agreement) == names
    differing = [row for row in result.agreement if not row.matches]
    assert differing == []
    assert [row.expected for row in result.agreement] == [None] * len(names)
    rows = {row.name: row for row in result.agreement}
    is_fetch = result.scenario["workload"] == "http-byte"
    assert (rows["messages in"].broker == 0) == is_fetch
    if not is_fetch:
        assert rows["payload in"].broker > rows["messages in"].broker * 16
    assert result.broker_view.note is None
    assert (result.broker_view.failures, result.broker_view.first_failure) == (0, None)


def assert_seconds_are_there(result):
    """Readings of both sides in the timeline, and what they add up to in the end."""
    seen = [sample.broker for sample in result.timeline if sample.broker is not None]
    assert seen
    assert {"connections", "in_msgs", "mem"} <= set(result.broker_view.units)
    assert all(view.mem > 1_000_000 for view in seen)
    counts = [view.in_msgs for view in seen]
    assert counts == sorted(counts)
    rows = {row.name: row for row in result.agreement}
    assert counts[-1] <= rows["messages in"].broker
    for sample in result.timeline:
        assert sample.broker is None or abs(sample.broker.t_s - sample.t_s) <= 1.0
        assert sample.published <= rows["messages in"].engine
        assert sample.delivered <= rows["messages out"].engine


@pytest.mark.parametrize("kind", ["churn-ws", "rest-new", "broadcast"])
def test_engine_and_broker_count_the_same(tmp_path, broker, kind):
    scenario, changes, names = RUNS[kind]
    words = ("--target", target_of(broker, changes), "--monitor-url", broker.monitor_url)
    ended = run(tmp_path / "run", scenario, *words, **changes)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert_exact(result, names)
    assert_seconds_are_there(result)
    if "churn_rate" in changes:
        assert result.achieved.churned > 20
        rows = {row.name: row for row in result.agreement}
        sessions = rows["connected sessions"].engine
        assert rows["connections closed by the load"].broker == result.achieved.churned + sessions
        assert rows["connections opened"].broker == result.achieved.churned + sessions
    if kind == "rest-new":
        assert result.broker_view.closed["http_answered"] == result.wire.calls
    assert f"engine and broker match in {len(names)} of {len(names)} counts" in ended.stderr
    report = (tmp_path / "run" / "report.html").read_text()
    assert "The broker&#39;s own view" in report
    assert report.count('class="holds">exact<') == len(names)
    for title in ("view-connections", "view-in", "view-out", "view-memory"):
        assert f'id="{title}-title"' in report


@pytest.mark.process
@pytest.mark.parametrize("kind", ["churn-tcp", "rest", "http-byte"])
def test_the_own_brokers_counters_are_always_read(tmp_path, kind):
    scenario, changes, names = RUNS[kind]
    ended = run(tmp_path / "run", scenario, **changes)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert_exact(result, names)
    assert_seconds_are_there(result)
    assert "agreement    holds  engine and broker match" in ended.stderr


@pytest.mark.process
def test_each_run_of_a_comparison_of_transports_has_its_rows(tmp_path):
    changes = {"calls": 500, "sequential_calls": 100, "outstanding": 8, "duration_s": 60, "warmup_s": 0.2}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    ended = subprocess.run(
        [*PYTHON, "subjectbus", "loadtest", "run", "transports", "--out", str(tmp_path / "run"), *words],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert len(result.agreement) == 2 * (8 + 8 + 7 + 8)
    assert all(row.matches for row in result.agreement)
    names = {row.name.partition(": ")[0] for row in result.agreement}
    assert names == {
        f"{t}, {who}" for t in ("rest-new", "rest", "ws", "tcp") for who in ("one caller", "8 at once")
    }
    assert (tmp_path / "run" / "report.html").read_text().count('class="holds">exact<') == 62


def test_nats_server_counts_as_the_engine_does(tmp_path, nats_server):
    for kind in ("churn-ws", "broadcast"):
        scenario, changes, _ = RUNS[kind]
        target = target_of(nats_server, changes)
        # By the scenario's key where there is no option.
        where = f'monitor="{nats_server.monitor_url}"'
        ended = run(tmp_path / kind, scenario, "--target", target, "--set", where, **changes)
        assert ended.returncode == 0, ended.stderr
        result = read_result(tmp_path / kind)
        # It does not say why connections ended.
        assert_exact(result, OPENED)
        assert_seconds_are_there(result)
        assert result.broker_view.closed == {}
        assert all(sample.broker.pending_bytes is None for sample in result.timeline if sample.broker)


def publish_aside(address, messages, payload=b"12345678"):
    """One more client, which publishes and goes."""
    with socket.create_connection(address, 10) as client:
        client.settimeout(10)
        client.sendall(b'CONNECT {"verbose":false}\r\n')
        client.sendall(b"PUB aside %d\r\n%s\r\n" % (len(payload), payload) * messages + b"PING\r\n")
        heard = b""
        while b"PONG\r\n" not in heard:
            heard += client.recv(65536)


class Running:
    """A run that is under way: its standard error has come to the measured phase."""

    def __init__(self, *words, **changes):
        self.process = subprocess.Popen(
            command(*words, **{"duration_s": 3, "timeout_s": 60, **changes}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if " measuring " in line:
                return
        pytest.fail("".join(self.said))

    @contextmanager
    def held(self):
        """Stop the engines meanwhile, so that the run cannot end before the test has done its part."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        engines = [child for child in children if "loadtest.workers.worker" in child.cmdline()]
        assert engines
        for engine in engines:
            engine.suspend()
        try:
            yield
        finally:
            for engine in engines:
                engine.resume()

    def end(self):
        """Exit status and all that was said."""
        _, rest = self.process.communicate(timeout=200)
        return self.process.returncode, "".join([*self.said, rest])


def test_messages_of_another_client_appear_as_the_difference(tmp_path, start_broker):
    broker = start_broker()
    words = ("--target", broker.url("ws"), "--monitor-url", broker.monitor_url)
    running = Running(tmp_path / "run", "autocomplete", *words, rate=200)
    with running.held():
        publish_aside(broker.tcp, 17)
    status, said = running.end()
    assert status == 0, said
    result = read_result(tmp_path / "run")
    differing = {row.name: row.difference for row in result.agreement if not row.matches}
    assert differing == {
        "messages in": 17,
        "payload in": 17 * 8,
        "connections opened": 1,
        "connections closed for a reason, or left": 1,
        "connections closed by the load": 1,
    }
    rows = {row.name: row for row in result.agreement}
    assert rows["messages in"].expected == "a target counts all of its clients"
    ours, theirs = rows["messages in"].engine, rows["messages in"].broker
    line = f"messages in: engine {ours:,}, broker {theirs:,} messages, difference +17 (a target counts"
    assert f"agreement    differs  {line}" in said
    assert "agreement    differs  engine and broker match in 3 of 8 counts" in said
    assert "differs, as expected: a target counts all" in (tmp_path / "run" / "report.html").read_text()


def listeners(process):
    """Addresses that the run's own broker listens at, each of them on several shards."""
    brokers = [child for child in process.children(recursive=True) if "serve" in child.cmdline()]
    return {
        tuple(one.laddr)
        for broker in brokers
        for one in broker.net_connections()
        if one.status == psutil.CONN_LISTEN
    }


def find_nats(addresses):
    """The one whose server says something first."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for address in addresses:
            client = stack.enter_context(socket.create_connection(address, 10))
            selector.register(client, selectors.EVENT_READ, address)
        [(key, _)] = selector.select(10)
        assert key.fileobj.recv(16).startswith(b"INFO")
        return key.data


@pytest.mark.process
def test_a_difference_from_the_own_broker_fails_the_run(tmp_path):
    running = Running(tmp_path / "run", "autocomplete", rate=200)
    with running.held():
        publish_aside(find_nats(listeners(psutil.Process(running.process.pid))), 5)
    status, said = running.end()
    assert status == 1, said
    result = read_result(tmp_path / "run")
    assert result.error is None
    assert not result.holds
    row = next(row for row in result.agreement if row.name == "messages in")
    assert (row.difference, row.expected, row.holds) == (5, None, False)
    expected = f"messages in: engine {row.engine:,}, broker {row.broker:,} messages, difference +5\n"
    assert f"agreement    FAILS  {expected}" in said
    assert '<span class="fails">differs</span>' in (tmp_path / "run" / "report.html").read_text()


NO_MONITOR = "this is not the monitor listener"


@pytest.mark.parametrize(
    ("serve", "failure"),
    [
        (hanging, "no answer within 2 s"),
        (trickling, "no answer within 2 s"),
        (saying(answer(b"", "426 Upgrade Required")), f"{NO_MONITOR}: status 426 Upgrade Required"),
        (saying(answer(b"moin")), f"{NO_MONITOR}: the answer is not a JSON object"),
        (saying(b"SSH-2.0-OpenSSH\r\n\r\n"), f"{NO_MONITOR}: the answer is not HTTP (BadStatusLine)"),
    ],
    ids=["hanging", "trickling", "426", "no JSON", "no HTTP"],
)
def test_a_url_without_a_monitor_is_refused_before_the_first_connection(
    tmp_path, start_broker, serve, failure
):
    broker = start_broker()
    with FakeMonitor(serve) as fake:
        words = ("--target", broker.url("ws"), "--monitor-url", fake.url)
        ended = run(tmp_path / "run", "autocomplete", *words, rate=200)
    said = f"subjectbus: error: the target's monitor does not return counters: {fake.url}/varz: {failure}"
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(said)
    assert not (tmp_path / "run").exists()
    assert broker.varz()["total_connections"] == 0


def test_an_unreachable_monitor_is_refused(tmp_path, broker):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        words = ("--target", broker.url("ws"), "--monitor-url", address)
        ended = run(tmp_path / "run", "autocomplete", *words, rate=200)
    assert ended.returncode == 2
    assert f"does not return counters: http://{address}/varz: connection refused" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_readings_of_a_monitor_that_disappears_are_kept(tmp_path, start_broker):
    broker = start_broker()

    def counters():
        connection = HTTPConnection(*broker.monitor, timeout=5)
        connection.request("GET", "/varz")
        told = json.loads(connection.getresponse().read())
        connection.close()
        return told

    with ExitStack() as stack, FakeMonitor(telling(counters)) as fake:
        words = ("--target", broker.url("tcp"), "--monitor-url", fake.url)
        running = Running(tmp_path / "run", "autocomplete", *words, rate=200)
        stack.enter_context(running.held())
    status, said = running.end()
    assert status == 0, said
    result = read_result(tmp_path / "run")
    assert result.agreement == []
    view = result.broker_view
    assert view.note == "the monitor did not answer at the end of the drain"
    assert view.readings > 0
    assert view.failures > 0
    assert [sample for sample in result.timeline if sample.broker is not None]


def test_an_unreachable_target_is_reported_even_if_its_monitor_answers(tmp_path, start_broker):
    broker = start_broker()
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        port = refusing.getsockname()[1]
        ended = run(tmp_path / "none", "autocomplete", "--target", f"nats://127.0.0.1:{port}", rate=200)
        assert ended.returncode == 3
        assert "is unreachable" in ended.stderr
        words = ("--target", f"nats://127.0.0.1:{port}", "--monitor-url", broker.monitor_url)
        ended = run(tmp_path / "told", "autocomplete", *words, rate=200)
    assert ended.returncode == 3
    assert f"127.0.0.1:{port}" in ended.stderr.splitlines()[-1]
    result = read_result(tmp_path / "told")
    assert result.broker_view.note == "the run failed"


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--monitor-url", "http://127.0.0.1:1"), "--monitor-url: needs a target"),
        (
            ("--target", "nats://127.0.0.1:1", "--monitor-url", "nats://127.0.0.1:1"),
            '"nats://127.0.0.1:1" is not the URL of a monitor listener',
        ),
    ],
)
def test_an_unusable_monitor_is_one_line(tmp_path, words, error):
    ended = run(tmp_path / "run", "autocomplete", *words, rate=200)
    assert ended.returncode == 2
    assert error in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_monitor_is_read_while_others_read_it(tmp_path, start_broker):
    """The reading connection does not count among the sessions, nor do others of the monitor."""
    broker = start_broker()
    words = ("--target", broker.url("ws"), "--monitor-url", broker.monitor_url)
    running = Running(tmp_path / "run", "broadcast", *words, rate=20)
    with running.held():
        asked = [broker.varz() for _ in range(20)]
        assert all(told["connections"] == 41 for told in asked)
        with Wire(broker) as other:
            other.handshake()
            wait_until(lambda: broker.varz()["connections"] == 42)
    status, said = running.end()
    assert status == 0, said
    rows = {row.name: row for row in read_result(tmp_path / "run").agreement}
    assert rows["connected sessions"].matches
    assert rows["connections opened"].difference == 1
