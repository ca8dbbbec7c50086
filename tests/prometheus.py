"""Prometheus as a counterpart: its server, its tool, and the metrics that a broker exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.servers import STOP_TIMEOUT_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Broker

SCRAPE_INTERVAL_S = 0.2
_ADDRESS = re.compile(r'msg="Listening on".* address=127\.0\.0\.1:(\d+)')
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Family(NamedTuple):
    """A metric as a broker describes it in the text format 0.0.4."""

    type: str
    help: str
    labels: frozenset[str]
    """Of all its samples, but for a histogram's `le`."""
    samples: frozenset[str]
    """Names of its samples."""


class Prometheus:
    """A Prometheus that scrapes one broker as the job `subjectbus`; a context manager."""

    def __init__(self, directory: Path, broker: Broker, rules: Path) -> None:
        host, port = broker.monitor
        config = directory / "prometheus.json"  # JSON is YAML
        job = {"job_name": "subjectbus", "static_configs": [{"targets": [f"{host}:{port}"]}]}
        intervals = {"scrape_interval": f"{SCRAPE_INTERVAL_S * 1000:.0f}ms", "evaluation_interval": "1s"}
        config.write_text(
            json.dumps(
                {
                    "global": {**intervals, "scrape_timeout": intervals["scrape_interval"]},
                    "rule_files": [str(rules)],
                    "scrape_configs": [job],
                }
            )
        )
        self.log = directory / "prometheus.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={directory / 'tsdb'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        try:
            found = wait_until(lambda: _ADDRESS.search(self.log.read_text()), 20, "Prometheus to listen")
            self._url = f"http://127.0.0.1:{found[1]}"
            wait_until(self._is_ready, 20, "Prometheus to be ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self._url}/-/ready", timeout=10).close()
        except urllib.error.HTTPError:
            return False
        return True

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of the HTTP API."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> float | None:
        """The value now of an expression that has one sample, None without any."""
        result = self.ask("query", query=expression)["result"]
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def wait_for(self, expression: str, value: float) -> None:
        """Wait until a scrape has brought this value."""
        wait_until(lambda: self.query(expression) == value, 20, f"{expression} == {value}")


def exposition(broker: Broker) -> str:
    """What a scrape without preferences gets."""
    host, port = broker.monitor
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
        return text


def families(text: str) -> dict[str, Family]:
    """The metrics of an exposition in the text format 0.0.4, by name."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    found = {}
    for name, kind in types.items():
        suffixes = "(?:_bucket|_sum|_count)" if kind == "histogram" else ""
        samples = [match for match in _SAMPLE.finditer(text) if re.fullmatch(name + suffixes, match[1])]
        labels = {label for match in samples for label, _ in _LABEL.findall(match[2] or "")}
        labels -= {"le"} if kind == "histogram" else set()
        found[name] = Family(
            kind, helps.get(name, ""), frozenset(labels), frozenset(match[1] for match in samples)
        )
    return found


def check(*arguments: str | Path, text: str = "") -> str:
    """What `promtool check ...` or `promtool test ...` says, which must be content."""
    done = subprocess.run(
        [shutil.which("promtool") or "promtool", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
