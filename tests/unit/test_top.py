"""`subjectbus top` without a broker: URLs, errors, figures, rates, the picture's size."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress
from itertools import product

import pytest
from rich.console import Console

from subjectbus import cli
from subjectbus.errors import MonitorError, UsageError
from subjectbus.monitoring import SORTS, Endpoint, Monitor, Sample
from subjectbus.printable import printable
from subjectbus.top import view
from subjectbus.top.figures import count, size
from subjectbus.top.rates import RateMeter
from tests.unit.monitor_stand_in import documents, serving

EVIL = "a\x1b[2J\x07\x9b31m\u202e\r\n\x7f\u2028[red]"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://127.0.0.1:8222", Endpoint("127.0.0.1", 8222)),
        ("http://broker", Endpoint("broker", 8222)),
        ("http://[::1]:9000/", Endpoint("::1", 9000)),
        ("http://proxy:80/nats/one/", Endpoint("proxy", 80, "/nats/one")),
        ("127.0.0.1:9000", Endpoint("127.0.0.1", 9000)),
        ("broker", Endpoint("broker", 8222)),
        ("[::1]:9000", Endpoint("::1", 9000)),
        ("http://broker:1/varz", Endpoint("broker", 1)),
        ("http://proxy/nats/varz/", Endpoint("proxy", 8222, "/nats")),
    ],
)
def test_urls_are_parsed(url, endpoint):
    assert Endpoint.parse(url) == endpoint
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://broker:8222", "scheme"),
        ("", "host"),
        ("me@broker:8222", "user"),
        ("https://broker:8222", "scheme"),
        ("http://", "host"),
        ("http://:8222", "host"),
        ("http://broker:x", "ort"),
        ("http://broker:99999", "ort"),
        ("http://broker:0", "port 0"),
        ("http://[::1", "IPv6"),
        ("http://me:secret@broker", "user"),
        ("http://broker?sort=cid", "query"),
        ("http://broker/a b", "percent-encoded"),
        ("http://broker/\x1b[2J", "percent-encoded"),
    ],
)
def test_unusable_urls_are_refused(url, why, capsys):
    with pytest.raises(UsageError, match=why):
        Endpoint.parse(url)
    assert cli.main(["top", url, "--once"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.strip().isprintable()


RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
NO_MONITOR = "this is not the monitor listener"
ANSWERS = {
    "no JSON": (RESPONSE % (9, b"<p>hi</p>"), f"{NO_MONITOR}: the answer is not a JSON object"),
    "no object": (RESPONSE % (2, b"[]"), "the answer is not a JSON object"),
    "cut short": (RESPONSE % (100, b'{"cid": 7'), "the answer is not a JSON object"),
    "not UTF-8": (RESPONSE % (9, b'{"a":"\xff"}'), "the answer is not a JSON object"),
    "another server": ({"server_id": "N1"}, "missing required field `server_name`"),
    "wrong type": ({**documents()["/varz"], "in_msgs": "many"}, "`$.in_msgs`"),
    "absent": (None, "status 404 Not Found: no such document"),
    "problem": (
        b'HTTP/1.1 400 \r\nContent-Length: 20\r\n\r\n{"detail":"\\u001b!"}',
        r"status 400: \x1b!",
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", f"{NO_MONITOR}: the answer is not HTTP"),
    "WebSocket alone": (
        b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n",
        f"{NO_MONITOR}: status 426 Upgrade Required",
    ),
    "nothing": (b"", "the connection was closed without an answer"),
}


@pytest.mark.parametrize(("answer", "said"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("flags", [["--once"], ["--once", "--json"]], ids=["text", "json"])
def test_bad_answers_are_one_line_and_status_3(answer, said, flags, capsys):
    answers = {**documents(), "/varz": answer}
    with serving(answers) as url:
        assert cli.main(["top", url, *flags]) == 3
        streams = capsys.readouterr()
        assert streams.out == ""
        assert streams.err.startswith(f"subjectbus: error: {url}/varz: ")
        assert said in streams.err
        assert streams.err.count("\n") == 1
        assert streams.err.strip().isprintable()


@pytest.mark.parametrize("form", ["{}/varz", "{}/varz/", "{}"])
def test_other_forms_of_the_url_reach_the_same_monitor(form, capsys):
    with serving(documents()) as url:
        asked = form.format(url if "varz" in form else url.removeprefix("http://"))
        assert cli.main(["top", asked, "--once", "--json", "--interval", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == url


def test_a_closed_port_is_an_error(capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert cli.main(["top", url, "--once"]) == 3
    assert capsys.readouterr().err == f"subjectbus: error: {url}/varz: connection refused\n"


def test_a_silent_server_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(MonitorError, match=r"no answer within 0\.05 s"):
            Monitor(endpoint, timeout_s=0.05).sample(sort="cid", limit=1)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\n\r\n{"])
def test_a_very_slow_answer_times_out(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def trickle():
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(answer)
                while not is_over.wait(0.01):
                    client.sendall(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(MonitorError, match=r"no answer within 0\.2 s"):
            Monitor(endpoint, timeout_s=0.2).sample()
        is_over.set()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--json"], "--once"),
        ([], "--once"),
        (["--once", "--sort", "size"], "--sort"),
        (["--once", "--limit", "0"], "--limit"),
        (["--once", "--limit", "1025"], "--limit"),
        (["--once", "--interval", "0"], "--interval"),
        (["--once", "--interval", "nan"], "--interval"),
        (["--once", "--interval", "inf"], "--interval"),
    ],
)
def test_unusable_arguments(arguments, named, capsys):
    """Among them: a live view where there is no terminal."""
    with serving(documents()) as url:
        assert cli.main(["top", url, *arguments]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9999, "9,999"), (10_000, "10.0k"), (99_950, "100k"), (999_499, "999k"), (999_500, "1.00M"),
     (1_000_016, "1.00M"), (45_600_000_000, "45.6G"), (0.4, "0")],
)  # fmt: skip
def test_counts(number, text):
    assert count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (64 << 20, "64.0 MiB"),
     ((1 << 20) - 1, "1.00 MiB"), (3 << 50, "3072 TiB")],
)  # fmt: skip
def test_sizes(number, text):
    assert size(number) == text


def test_printable():
    assert printable("Grüße, 世界 \\") == "Grüße, 世界 \\"
    assert printable(EVIL) == r"a\x1b[2J\x07\x9b31m\u202e\r\n\x7f\u2028[red]"
    assert printable("\ud800") == r"\ud800"


def look(answers=None) -> Sample:
    with serving(answers or documents()) as url:
        return Monitor(Endpoint.parse(url)).sample(sort="msgs_to", limit=1)


def test_rates_use_the_brokers_clock():
    meter = RateMeter(min_interval_s=1.0)
    meter.add(look())
    assert meter.rates is None
    later = documents(uptime_s=3725.0, in_msgs=25, out_bytes=1060, conservation={"dropped": {"closed": 8}})
    later["/connz"]["connections"][0]["out_msgs"] = 106
    later["/varz"]["shard"][0]["turns"] = 150
    meter.add(look(later))
    assert meter.rates is not None
    assert (meter.rates.seconds, meter.rates.in_msgs_per_s, meter.rates.out_msgs_per_s) == (2.0, 10.0, 0.0)
    assert (meter.rates.out_bytes_per_s, meter.rates.dropped_per_s) == (500.0, 4.0)
    assert (meter.clients, meter.turns) == ({7: (50.0, 0.0)}, {0: 25.0})
    soon = meter.rates
    meter.add(look(documents(uptime_s=3725.5, in_msgs=1_000_000)))
    assert meter.rates is soon


@pytest.mark.parametrize("again", [{"server_id": "N2", "uptime_s": 9999.0}, {"uptime_s": 1.0}])
def test_a_broker_that_started_again_has_no_rates_yet(again):
    meter = RateMeter(min_interval_s=0.0)
    for varz in ({}, {"uptime_s": 3724.0}):
        meter.add(look(documents(**varz)))
    assert meter.rates is not None
    meter.add(look(documents(**again, in_msgs=0)))
    assert meter.rates is None
    assert meter.clients == {}


def evil_documents(shards: int = 1, clients: int = 40):
    """Return documents in which every text from clients is hostile."""
    answers = documents(server_name=EVIL, version=EVIL, driver=EVIL, uptime=EVIL)
    for key in ("name", "lang", "version", "type", "ip", "uptime", "idle"):
        answers["/connz"]["connections"][0][key] = EVIL
    answers["/connz"]["connections"] *= clients
    answers["/subjects"]["subjects"][0]["subject"] = EVIL
    answers["/subjects"]["subjects"] *= 12
    answers["/varz"]["shard"] *= shards
    return answers


def draw(answers, columns: int, rows: int, *, shows_keys: bool = False) -> str:
    console = Console(force_terminal=True, color_system=None, width=columns, height=rows, markup=False)
    notes = [f"no answer: {EVIL}"]
    sample = answers if isinstance(answers, Sample) else look(answers)
    state = view.State(Endpoint("broker", 1), RateMeter(0.0), sample, notes, shows_keys=shows_keys)
    with console.capture() as capture:
        console.print(view.screen(state, columns, rows))
    return capture.get()


@pytest.mark.parametrize(("shards", "clients"), [(1, 40), (64, 40), (64, 1)])
@pytest.mark.parametrize("shows_keys", [False, True], ids=["tables", "keys"])
def test_the_screen_fits_and_has_no_control_characters(shards, clients, shows_keys):
    sample = look(evil_documents(shards, clients))
    for columns, rows in product([40, 80, 120, 160, 300], [9, 19, 20, 24, 60]):
        drawn = draw(sample, columns, rows, shows_keys=shows_keys)
        lines = drawn.splitlines()
        assert len(lines) == rows, (columns, rows)
        assert max(map(len, lines)) <= columns, (columns, rows)
        assert drawn.replace("\n", "").isprintable(), (columns, rows)
        assert lines[-1].startswith("q quit"), (columns, rows)
        if columns >= 80 and (rows > 9 or not shows_keys):
            assert "MSGS_TO" in drawn, (columns, rows)
            assert "of 1.00M" in drawn, (columns, rows)


@pytest.mark.parametrize("columns", [80, 100, 132, 200])
def test_the_last_line_is_complete(columns):
    last = draw(documents(), columns, 24).splitlines()[-1].rstrip()
    assert last.startswith("q quit  ? keys  space pause  s next order")
    assert "…" not in last
    assert last.endswith("t uptime" if columns >= 150 else "s next order")


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_all_keys_are_shown_on_request(columns):
    drawn = draw(documents(), columns, 24, shows_keys=True)
    for key, order in view.KEYS.items():
        assert f" {key} by {order} " in drawn
    assert "by msgs_to" in drawn
    assert "HOTTEST" not in drawn


def shards_of(drawn: str) -> int:
    """Rows of the shards' table."""
    lines = drawn.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("SHARD ")) + 1
    return next(number for number, line in enumerate(lines[first:]) if not line[:5].strip().isdigit())


@pytest.mark.parametrize("columns", [80, 160])
def test_free_lines_show_more_shards(columns):
    drawn = draw(evil_documents(shards=8, clients=1), columns, 24)
    assert shards_of(drawn) == 8
    assert "of 8 shards" not in drawn


@pytest.mark.parametrize(("columns", "shown"), [(80, 2), (160, 6)])
def test_shards_that_are_left_out_are_counted(columns, shown):
    drawn = draw(evil_documents(shards=8, clients=40), columns, 24)
    assert shards_of(drawn) == shown
    assert f"{shown} of 8 shards, the busiest" in drawn


@pytest.mark.parametrize("columns", [80, 160])
def test_a_drain_is_in_the_header(columns, capsys):
    answers = documents(draining=True)
    assert "draining" in draw(answers, columns, 24).splitlines()[0]
    assert "draining" not in draw(documents(draining=False), columns, 24)
    assert "draining" not in draw(documents(), columns, 24)
    with serving(answers) as url:
        assert cli.main(["top", url, "--once", "--interval", "0.1"]) == 0
        assert "draining" in capsys.readouterr().out.splitlines()[0]
        assert cli.main(["top", url, "--once", "--json", "--interval", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["varz"]["draining"] is True


@pytest.mark.parametrize("columns", [80, 160])
def test_the_heading_of_subjects_names_the_time(columns, capsys):
    answers = documents()
    answers["/subjects"]["seconds"] = 48.2
    heading = "HOTTEST SUBJECTS over the last 48 s"
    assert heading in draw(answers, columns, 24)
    with serving(answers) as url:
        assert cli.main(["top", url, "--once", "--interval", "0.1"]) == 0
    assert heading in capsys.readouterr().out


def test_a_narrow_screen_keeps_the_column_of_the_order():
    answers = documents()
    with serving(answers) as url:
        sample = Monitor(Endpoint.parse(url)).sample(sort="idle", limit=1)
    state = view.State(Endpoint("broker", 1), RateMeter(0.0), sample)
    console = Console(width=60, color_system=None, markup=False)
    with console.capture() as capture:
        console.print(view.screen(state, 60, 24))
    assert "IDLE" in capture.get()
    assert "by idle" in capture.get()


@pytest.mark.parametrize("flags", [["--once"], ["--once", "--json"]], ids=["text", "json"])
def test_once_prints_no_control_characters(flags, capsys):
    with serving(evil_documents()) as url:
        assert cli.main(["top", url, "--interval", "0.1", *flags]) == 0
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    assert re.search(r"\\(x|u00)1b\[2J", said)


def test_once_json_is_one_object(capsys):
    with serving(documents(uptime="Grüße")) as url:
        assert cli.main(["top", url, "--once", "--json", "--interval", "0.1"]) == 0
    said = capsys.readouterr().out
    answer = json.loads(said)
    assert said.count("\n") == 1
    assert answer["url"] == url
    assert answer["varz"] == documents(uptime="Grüße")["/varz"]
    assert answer["connections"] == documents()["/connz"]["connections"]
    assert answer["subjects"] == documents()["/subjects"]["subjects"]


def test_every_order_has_a_key():
    assert sorted(view.KEYS.values()) == sorted(SORTS)
    assert not {"q", "s", " ", *view.HELP_KEYS} & set(view.KEYS)


def test_one_connection_serves_all_documents_and_a_closed_one_is_made_again():
    ports = set()
    answers = documents()
    with serving(answers, ports.add) as url, Monitor(url) as monitor:
        monitor.sample()
        assert monitor.fetch("/varz")["server_id"] == "N1"
        assert len(ports) == 1
        monitor.close()
        assert monitor.fetch("/connz", sort="cid", limit=1)["total"] == 1
        assert len(ports) == 2


def test_a_fetch_is_interrupted_by_another_thread():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monitor = Monitor(Endpoint("127.0.0.1", silent.getsockname()[1]), timeout_s=600)
        failures = []

        def fetch():
            with pytest.raises(MonitorError) as raised:
                monitor.fetch()
            failures.append(str(raised.value))

        thread = threading.Thread(target=fetch)
        thread.start()
        connection, _ = silent.accept()
        with connection:
            connection.recv(4096)
            monitor.interrupt()
            thread.join(10)
        assert not thread.is_alive()
    assert failures == [f"{monitor.endpoint}/varz: the connection was closed without an answer"]


def test_an_answer_above_the_limit_is_refused():
    with (
        serving({"/varz": {"long": "x" * 1000}}) as url,
        Monitor(url, max_bytes=100) as monitor,
        pytest.raises(MonitorError, match="/varz: the answer is longer than 100 bytes"),
    ):
        monitor.fetch()
