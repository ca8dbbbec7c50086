import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
from msgspec import structs

from loadtest.report.parquet import COLUMNS, encode_timeline
from loadtest.result.broker_view import BrokerSample
from loadtest.result.schema import Host, HostSample, Result, Sample
from tests.loadtest import samples

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "result-folder.md"


def look(t_s: float, phase: str, **changes) -> Sample:
    sample = Sample(
        t_s=t_s, phase=phase, connections=116, sent=int(t_s * 100), received=int(t_s * 100) - 1,
        outstanding=1, timed_out=2, errors=3, mean_us=1500.0, max_us=9000.0, server_cpu_percent=12.5,
        server_rss_bytes=50_000_000, load_cpu_percent=30.0, published=int(t_s * 200), published_per_s=200.0,
    )  # fmt: skip
    return structs.replace(sample, **changes)


def seen(t_s: float) -> HostSample:
    return HostSample(
        t_s=t_s,
        cpu_percent=42.0,
        memory_used_bytes=10**9,
        net_in_bps=1e6,
        net_out_bps=2e6,
        retransmits_per_s=1.5,
    )


def whole() -> Result:
    """A run of five looks, two of them in the measured phase, which began at 2.25 s, on two hosts."""
    timeline = [
        look(0.0, "connecting", server_cpu_percent=None, server_rss_bytes=None, published_per_s=None),
        look(1.0, "warmup"),
        look(2.5, "measuring", broker=BrokerSample(t_s=2.6, connections=116, in_msgs=250, cpu=55.0)),
        look(3.5, "measuring"),
        look(4.5, "done"),
    ]
    hosts = [
        Host(name="b", samples=[seen(2.6), seen(3.6)]),
        Host(name="c", lost="no route", samples=[seen(1.1)]),
    ]
    return samples.result(timeline=timeline, hosts=hosts, measured_from_s=2.25)


def read(result: Result):
    return pq.read_table(io.BytesIO(encode_timeline(result)))


def rows_of(result: Result, source: str) -> list[dict]:
    """The rows of a source, without their nulls."""
    rows = [row for row in read(result).to_pylist() if row["source"] == source]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_there_is_a_row_for_each_second_and_source_in_the_order_of_time():
    rows = read(whole()).to_pylist()
    assert [(row["time_s"], row["source"]) for row in rows] == [
        (0.0, "load"),
        (1.0, "load"),
        (1.0, "server"),
        (1.1, "host c"),
        (2.25, "interval"),
        (2.5, "load"),
        (2.5, "server"),
        (2.6, "broker"),
        (2.6, "host b"),
        (3.25, "interval"),
        (3.5, "load"),
        (3.5, "server"),
        (3.6, "host b"),
        (4.5, "load"),
        (4.5, "server"),
    ]
    phases = {row["time_s"]: row["phase"] for row in rows}
    assert [phases[at] for at in (0.0, 1.1, 2.25, 3.6, 4.5)] == [
        "connecting", "warmup", "measuring", "measuring", "done",
    ]  # fmt: skip


def test_every_source_has_its_figures_and_nothing_else():
    result = whole()
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)  # the measured phase
    assert rows_of(result, "load")[2] == {
        "time_s": 2.5, "at_utc": started + timedelta(seconds=0.25), "measured_s": 0.25, "source": "load",
        "phase": "measuring", "connections": 116, "outstanding": 1, "sent_total": 250, "received_total": 249,
        "timed_out_total": 2, "errors_total": 3, "mean_us": 1500.0, "max_us": 9000.0,
        "in_messages_total": 500, "in_messages_per_s": 200.0, "out_messages_total": 0, "cpu_percent": 30.0,
    }  # fmt: skip
    common = ("time_s", "at_utc", "measured_s", "source", "phase")

    def figures(source: str, number: int = 0) -> dict:
        return {name: value for name, value in rows_of(result, source)[number].items() if name not in common}

    assert figures("server") == {"cpu_percent": 12.5, "memory_bytes": 50_000_000}
    assert figures("broker") == {"connections": 116, "in_messages_total": 250, "cpu_of_one_percent": 55.0}
    assert figures("host c") == {
        "cpu_percent": 42.0, "memory_bytes": 10**9, "net_in_bps": 1e6, "net_out_bps": 2e6,
        "retransmits_per_s": 1.5,
    }  # fmt: skip
    second = result.intervals[1]
    assert figures("interval", 1) == {
        "length_s": 1.0, "sent": second.sent, "received": second.received, "p50_us": second.p50_us,
        "p99_us": second.p99_us, "max_us": second.max_us, "max_send_lag_us": 0.0,
    }  # fmt: skip


def test_the_counts_of_the_intervals_are_the_run():
    result = whole()
    assert sum(row["received"] for row in rows_of(result, "interval")) == result.achieved.received


def test_every_column_has_unit_and_meaning_and_is_documented():
    schema, page = read(whole()).schema, PAGE.read_text()
    assert schema.names == list(COLUMNS)
    assert schema.metadata[b"subjectbus.timeline"] == b"1"
    assert schema.metadata[b"subjectbus.scenario"] == b"sample"
    for field in schema:
        unit, meaning = (field.metadata[key].decode() for key in (b"unit", b"description"))
        assert f"| `{field.name}` | {unit} | {meaning} |" in page


def test_an_earlier_versions_result_is_aligned_by_its_first_measured_sample():
    rows = rows_of(structs.replace(whole(), measured_from_s=None), "interval")
    assert [(row["time_s"], row["measured_s"]) for row in rows] == [(2.5, 0.0), (3.5, 1.0)]


def test_a_run_that_never_measured_has_a_time_line_too():
    result = samples.result(
        0, timeline=[look(0.0, "connecting"), look(1.0, "connecting")], intervals=[], measured_from_s=None
    )
    assert [row.get("measured_s") for row in rows_of(result, "load")] == [None, None]
    assert read(samples.result(0, timeline=[], intervals=[])).num_rows == 0


def test_a_comparison_of_transports_has_no_measured_time():
    result = structs.replace(whole(), transports=[], measured_from_s=None, intervals=[])
    assert all(row["measured_s"] is None for row in read(result).to_pylist())


def test_an_hour_on_four_hosts_stays_small():
    seconds = range(3600)
    result = structs.replace(
        whole(),
        timeline=[look(float(second), "measuring") for second in seconds],
        hosts=[Host(name=name, samples=[seen(float(second)) for second in seconds]) for name in "abcd"],
    )
    content = encode_timeline(result)
    assert pq.read_metadata(io.BytesIO(content)).num_rows == 6 * len(seconds) + 2
    assert len(content) < 1_000_000
