"""Whole runs over HTTP, small and short: through the command itself."""

import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

import loadtest
from loadtest import read_result
from loadtest.result.checks import failures
from tests.loadtest import commands

pytestmark = pytest.mark.process

SMALL = {
    "users": 20,
    "providers": 4,
    "warmup_s": 0.3,
    "duration_s": 1,
    "timeout_s": 5,
    # No objective of speed: the machine may be busy with other tests.
    "thresholds": ["achieved.timed_out == 0", "achieved.errors == 0", "achieved.disconnected == 0"],
}


def ask(folder, *arguments, **changes):
    return commands.run(folder, "autocomplete", *arguments, **{**SMALL, **changes})


def closed(calls, **changes):
    """A closed loop that ends by its number of requests."""
    return {"rate": 0, "outstanding": 20, "calls": calls, "duration_s": 60, **changes}


@pytest.mark.parametrize("driver", ["epoll", "auto"])
@pytest.mark.parametrize("transport", ["rest", "rest-new"])
def test_requests_over_http_on_the_own_broker(tmp_path, transport, driver):
    changes = closed(2000, transport=transport, load_driver=driver, **{"broker.driver": driver})
    ended = ask(tmp_path / "run", **changes)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    achieved, wire = result.achieved, result.wire
    assert (achieved.sent, achieved.received, achieved.statuses) == (2000, 2000, {})
    assert (achieved.connections, achieved.subjects) == (24, 4)
    assert result.duration_s < 30
    assert result.conservation.holds, result.conservation
    assert result.conservation.published == result.conservation.delivered == 2 * wire.calls
    # Each of the users had a connection to begin with, which its first call used.
    assert achieved.connections_opened == (20 if transport == "rest" else wire.calls)
    assert (wire.payload_out, wire.payload_in) == (32, 256)
    head = b"POST /v1/request/%2Fs%2F0 HTTP/1.1\r\nHost: 127.0.0.1:12345\r\nContent-Length: 32\r\n\r\n"
    close = len(b"Connection: close\r\n") if transport == "rest-new" else 0
    assert wire.head_out == pytest.approx(len(head) + close, abs=2)
    assert wire.out == pytest.approx(wire.head_out + 32)
    assert wire.in_ == pytest.approx(wire.head_in + 256)
    assert 50 < wire.head_in < 250
    assert "HTTP heads, bytes/call" in ended.stderr


def test_an_open_loop_of_several_processes_with_a_sweep():
    changes = {"transport": "rest", "rate": 300, "requestors": 2, "threads": 2, "sweep": True, "users": 40}
    result = loadtest.run("autocomplete", **{**SMALL, **changes})
    assert result.holds, failures(result)
    assert result.sweep.received == 40
    assert result.achieved.sent == pytest.approx(300, rel=0.05)
    assert result.conservation.holds, result.conservation


def test_calls_over_websocket(tmp_path):
    ended = ask(tmp_path / "run", **closed(1500, transport="ws", requestors=3, provider_transport="tcp"))
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert (result.achieved.sent, result.achieved.received) == (1500, 1500)
    assert result.wire.heads == 0
    assert 288 < result.wire.total < 400
    assert "calls: sent 1,500 = asked for 1,500" in ended.stderr


def test_calls_that_take_too_long_fail_the_run(tmp_path):
    ended = ask(tmp_path / "run", **closed(100_000_000, duration_s=0.5))
    assert ended.returncode == 1
    assert "calls: sent" in ended.stderr


def test_requests_over_http_on_a_target(start_broker):
    url = start_broker(request_timeout_s=5).url("http")
    result = loadtest.run("autocomplete", target=url, **{**SMALL, **closed(500, transport="rest-new")})
    assert result.holds, failures(result)
    assert (result.target, result.achieved.received) == (url, 500)
    # Of the scenario's own transport the target's scheme makes HTTP.
    result = loadtest.run("autocomplete", target=url, **{**SMALL, **closed(500)})
    assert result.holds, failures(result)
    assert result.scenario["transport"] == "rest"


def test_a_request_that_is_refused_is_an_error_by_its_status(tmp_path):
    changes = closed(50, transport="rest", warmup_s=0, request_bytes=64, reply_bytes=32)
    changes["broker.max_payload"] = 63
    ended = ask(tmp_path / "run", **changes)
    assert ended.returncode == 1, ended.stderr
    result = read_result(tmp_path / "run")
    assert (result.achieved.sent, result.achieved.errors) == (50, 50)
    assert (result.achieved.statuses, result.wire) == ({"413": 50}, None)
    assert result.achieved.first_server_error.startswith("413 Content Too Large")
    assert "Errors from the server: " in ended.stderr
    assert result.conservation.holds, result.conservation
    assert "published 0 = requests 0 + replies 0" in ended.stderr


@pytest.mark.parametrize("transport", ["rest", "rest-new"])
def test_the_baseline_of_http(tmp_path, transport):
    changes = {"users": 10, "warmup_s": 0.2, "transport": transport, **closed(1000, outstanding=10)}
    ended = commands.run(tmp_path / "run", "http-byte", **changes)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert (result.achieved.sent, result.achieved.received) == (1000, 1000)
    assert (result.wire.payload_out, result.wire.payload_in) == (0, 1)
    assert result.wire.in_ == pytest.approx(result.wire.head_in + 1)
    assert result.reference.rate == 1_039_305
    assert "Undertow, 2014" in (tmp_path / "run" / "report.html").read_text()
    assert "1,039,305" in ended.stderr


def test_the_baseline_of_http_at_a_rate():
    changes = {"users": 10, "outstanding": 0, "rate": 200, "warmup_s": 0.2, "duration_s": 1}
    result = loadtest.run("http-byte", **changes)
    assert result.holds, failures(result)
    assert result.achieved.sent == pytest.approx(200, rel=0.05)
    assert result.achieved.sent == result.achieved.received


class Page(BaseHTTPRequestHandler):
    """Two bytes at /two, an error elsewhere."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body, status = (b"ab", 200) if self.path == "/two?x=1" else (b"gone", 410)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """Says nothing."""


@pytest.fixture
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_any_page_may_be_fetched(site):
    changes = {"users": 4, "warmup_s": 0, **closed(100, outstanding=4)}
    result = loadtest.run("http-byte", target=f"{site}/two?x=1", reply_bytes=2, **changes)
    assert result.holds, failures(result)
    assert result.achieved.received == 100
    result = loadtest.run("http-byte", target=f"{site}/two?x=1", **changes)
    assert not result.holds
    achieved = result.achieved
    assert (achieved.received, achieved.corrupt, achieved.errors) == (0, 100, 100)
    result = loadtest.run("http-byte", target=site, **changes)
    assert not result.holds
    achieved = result.achieved
    assert (achieved.received, achieved.errors, achieved.statuses) == (0, 100, {"410": 100})
    assert achieved.first_server_error == "410 : gone"


@pytest.mark.parametrize(
    ("scenario", "changes", "target", "error"),
    [
        (
            "autocomplete",
            {"transport": "rest"},
            "nats://127.0.0.1:1",
            "transport: rest needs a target http://",
        ),
        ("http-byte", {}, "nats://127.0.0.1:1", "fetches over HTTP, and needs a target http://"),
        ("transports", {}, "ws://127.0.0.1:1", "takes no target"),
    ],
)
def test_an_unsuitable_target_gives_one_line(tmp_path, scenario, changes, target, error):
    with pytest.raises(loadtest.ScenarioError, match=error) as raised:
        loadtest.run(scenario, target=target, out=tmp_path / "run", **changes)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_transports_are_compared(tmp_path):
    changes = {"calls": 2000, "sequential_calls": 300, "outstanding": 8, "warmup_s": 0.2, "duration_s": 60}
    ended = commands.run(tmp_path / "run", "transports", **changes)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    rows = {(row.transport, row.outstanding): row for row in result.transports}
    assert [(row.transport, row.outstanding, row.calls) for row in result.transports] == [
        (transport, outstanding, calls)
        for outstanding, calls in ((1, 300), (8, 2000))
        for transport in ("rest-new", "rest", "ws", "tcp")
    ]
    assert result.conservation.holds, result.conservation
    for row in result.transports:
        assert row.calls_per_s == pytest.approx(row.calls / row.total_s)
        assert (row.errors, row.timed_out) == (0, 0)
        assert row.latency_us.count == row.calls
        assert (row.wire.payload_out, row.wire.payload_in) == (32, 256)
        assert row.wire.total > 288
        assert (row.wire.heads > 0) == row.transport.startswith("rest")
        assert row.connections_opened == (row.wire.calls if row.transport == "rest-new" else row.outstanding)
    assert rows["rest", 8].wire.total > rows["ws", 8].wire.total > rows["tcp", 8].wire.total
    for title in ("One caller", "8 callers"):
        assert title in ended.stderr
        assert title in (tmp_path / "run" / "report.html").read_text()
        assert f"## {title}" in (tmp_path / "run" / "report.md").read_text()
    assert "With one caller calls/s are:" in ended.stderr


def test_an_interrupted_comparison_keeps_its_results(tmp_path):
    changes = {"sequential_calls": 100, "calls": 100_000_000, "outstanding": 4, "warmup_s": 0.1}
    command = commands.run_command(tmp_path / "run", "transports", **changes)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "at once" in line:
            break
    for line in process.stderr:
        if " measuring " in line:
            break
    process.terminate()
    process.stderr.read()
    assert process.wait(60) == 3
    result = read_result(tmp_path / "run")
    assert result.error == "rest-new, 4 at once: interrupted"
    assert [row.outstanding for row in result.transports] == [1, 1, 1, 1, 4]
    assert result.transports[0].calls == 100
    assert result.transports[4].calls > 0
