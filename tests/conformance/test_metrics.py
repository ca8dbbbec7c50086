"""`/metrics`: both formats of Prometheus and their content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.monitor import clients, fetch

if TYPE_CHECKING:
    from tests.servers import Broker

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\})? (\S+)')
COUNTERS = {
    *(f"connections_{name}" for name in ("opened", "closed", "transport_closed", "dismissed")),
    *("accept_failures", "subscriptions_added", "subscriptions_removed"),
    *(f"{way}_{what}" for way in ("received", "sent") for what in ("messages", "bytes")),
    *("wire_received_bytes", "wire_sent_bytes", "writes", "matched_messages", "delivered_messages"),
    *("dropped_messages", "no_responders", "stalls", "protocol_errors"),
    *("http_requests", "http_errors", "event_streams", "gateway_requests", "gateway_timeouts"),
    *("shard_turns", "shard_calls", "shard_cpu_seconds", "log_suppressed", "log_lost"),
}
GAUGES = {
    *("connections", "connections_half_open", "max_connections", "subscriptions", "subjects", "ready"),
    *("pending_messages", "pending_bytes"),
    *("held_memory_bytes", "max_memory_bytes"),
    *("mailbox_messages", "accept_queue", "descriptors", "descriptors_limit"),
    *("memory_bytes", "gateway_in_flight", "start_time_seconds"),
}
HISTOGRAMS = {"turn_duration_seconds", "turn_received_batch", "gateway_request_duration_seconds"}


def metrics(broker: Broker, accept: str) -> tuple[str, dict[str, str], dict[str, list[tuple[str, float]]]]:
    """The media type, each family's kind, and each name's labels and values."""
    status, fields, body = fetch(broker, "/metrics", Accept=accept)
    assert status == 200
    kinds: dict[str, str] = {}
    samples: dict[str, list[tuple[str, float]]] = {}
    for line in body.decode().removesuffix("# EOF\n").splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kinds.setdefault(name, kind) == kind
        elif not line.startswith("# "):
            matched = SAMPLE.fullmatch(line)
            assert matched, line
            samples.setdefault(matched[1], []).append((matched[2] or "", float(matched[3])))
    return fields["content-type"], kinds, samples


@pytest.mark.parametrize("is_open", [False, True])
def test_metrics_are_served_in_both_formats(broker: Broker, is_open: bool) -> None:
    accept = "application/openmetrics-text; version=1.0.0, text/plain;q=0.5" if is_open else "text/plain"
    with clients(broker, "one") as [wire]:
        wire.send(b"SUB a 1\r\nPUB a 3\r\nabc\r\n")
        wire.expect(b"MSG a 1 3\r\nabc\r\n")
        kind, kinds, samples = metrics(broker, accept)
    total = "" if is_open else "_total"
    assert kind == (
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
        if is_open
        else "text/plain; version=0.0.4; charset=utf-8"
    )
    assert kinds == {
        **{f"subjectbus_{name}{total}": "counter" for name in COUNTERS},
        **{f"subjectbus_{name}": "gauge" for name in GAUGES},
        **{f"subjectbus_{name}": "histogram" for name in HISTOGRAMS},
        **({"subjectbus_build": "info"} if is_open else {"subjectbus_build_info": "gauge"}),
        "process_resident_memory_bytes": "gauge",
        f"process_cpu_seconds{total}": "counter",
        "process_start_time_seconds": "gauge",
    }
    assert all(samples[f"subjectbus_{name}_total"] for name in COUNTERS)
    assert all(samples[f"subjectbus_{name}"] for name in GAUGES)
    assert dict(samples["subjectbus_connections"])['transport="tcp"'] == 1
    assert dict(samples["subjectbus_received_messages_total"])['transport="tcp"'] >= 1
    assert dict(samples["subjectbus_sent_bytes_total"])['transport="tcp"'] >= 3
    assert samples["subjectbus_subscriptions"] == samples["subjectbus_ready"] == [("", 1)]
    assert samples["process_resident_memory_bytes"][0][1] > 1 << 20
    assert len(samples["subjectbus_shard_cpu_seconds_total"]) == broker.varz()["shards"]
    for name in HISTOGRAMS:
        counts = [count for _, count in samples[f"subjectbus_{name}_bucket"]]
        assert counts == sorted(counts)
        assert samples[f"subjectbus_{name}_bucket"][-1] == ('le="+Inf"', counts[-1])
        assert samples[f"subjectbus_{name}_count"] == [("", counts[-1])]
        assert samples[f"subjectbus_{name}_sum"][0][1] >= 0
    assert dict(samples["subjectbus_turn_received_batch_bucket"])['le="65535.0"'] > 0


def test_openmetrics_ends_with_its_mark(broker: Broker) -> None:
    assert fetch(broker, "/metrics", Accept="application/openmetrics-text")[2].endswith(b"\n# EOF\n")
    assert b"# EOF" not in fetch(broker, "/metrics")[2]
