"""Servers that serve one byte over HTTP, and the load generator wrk, each pinned to a core of its own."""

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from measure import LOAD_CPU, SERVER_CPU, Figures
from servers import ROOT, START_TIMEOUT_S, Broker, own_broker, pinned

WARMUP_S = 2
_UNDERTOW = ROOT / "benchmarks" / "undertow"
_LIBRARIES = ROOT / ".cache" / "undertow"
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Site:
    """Server that answers a GET of its URL with one byte."""

    name: str
    start: Callable[[], AbstractContextManager[tuple[subprocess.Popen[str], str]]]
    """Function that starts the server, pinned, and yields its process and its URL."""


def find_sites() -> tuple[list[Site], list[str]]:
    """Return the servers that are installed on this machine, and notes about the others."""
    sites, notes = [Site(f"subjectbus, {driver}", _broker(driver)) for driver in ("uring", "epoll")], []
    if shutil.which("nginx"):
        sites.append(Site("nginx, one worker", _nginx))
    else:
        notes.append("nginx is not installed (Debian: apt-get install nginx-light).")
    if (trouble := _fetch_undertow()) is None:
        sites.append(Site("Undertow, one I/O thread", _undertow))
    else:
        notes.append(f"Undertow was not measured: {trouble}.")
    return sites, notes


def run_wrk(site: Site, connections: int, duration_s: int) -> Figures:
    """Measure a server, after a warm-up, with one thread of wrk; return rate, latency and CPU per request.

    Raises:
        SystemExit: A request failed.
    """
    with site.start() as (process, url):
        _wrk(url, connections, WARMUP_S)
        before = _cpu_s(process.pid)
        text = _wrk(url, connections, duration_s)
        used_s = _cpu_s(process.pid) - before
    requests = _number(r"(\d+) requests in", text)
    if "Socket errors" in text or "Non-2xx" in text:
        raise SystemExit(f"{site.name}: {text}")
    return {
        "requests_per_s": _number(r"Requests/sec:\s+([\d.]+)", text),
        "mean_ms": _time_ms(r"Latency\s+([\d.]+)(us|ms|s)\b", text),
        "p99_ms": _time_ms(r"99%\s+([\d.]+)(us|ms|s)\b", text),
        "server_cpu_us_per_request": used_s / requests * 1e6,
    }


def _wrk(url: str, connections: int, duration_s: int) -> str:
    command = [*pinned(LOAD_CPU), "wrk", "-t1", f"-c{connections}", f"-d{duration_s}", "--latency"]
    return subprocess.run([*command, url], stdout=subprocess.PIPE, text=True, check=True).stdout


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"wrk printed an unexpected text: {text}")
    return float(found[1])


def _time_ms(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return _number(pattern, text) * _MS[found[2]] if found else _number(pattern, text)


def _cpu_s(pid: int) -> float:
    """Return the processor time, user and system, of a process and its children, in seconds."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


@contextmanager
def _serving(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*pinned(SERVER_CPU), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _first_line(process: subprocess.Popen[str]) -> str:
    """Return the line that a server prints when it accepts connections."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} did not start")
    return line


def serve(driver: str) -> AbstractContextManager[Broker]:
    """Run the broker with one shard on the core of the server."""
    return own_broker(SERVER_CPU, driver=driver, shards=1, tcp="")


def _broker(driver: str) -> Callable[[], AbstractContextManager[tuple[subprocess.Popen[str], str]]]:
    @contextmanager
    def start() -> Iterator[tuple[subprocess.Popen[str], str]]:
        with serve(driver) as broker:
            yield broker.process, broker.url("http") + "/byte"

    return start


@contextmanager
def _nginx() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        config = Path(folder) / "nginx.conf"
        config.write_text(
            f"worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/log;\n"
            "events { worker_connections 4096; }\n"
            "http { access_log off; keepalive_requests 1000000000;\n"
            f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
            f"fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;\n"
            f"scgi_temp_path {folder}/scgi;\n"
            f"server {{ listen {address}; location / {{ default_type text/plain; return 200 a; }} }} }}\n",
            encoding="ascii",
        )
        with _serving(["nginx", "-c", str(config)]) as process:
            _wait_for(process, address)
            yield process, f"http://{address}/"


def _wait_for(process: subprocess.Popen[str], address: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{process.args!r} did not start") from None
            time.sleep(0.05)
        else:
            return


def _fetch_undertow() -> str | None:
    """Download the libraries of Undertow if they are missing; return the reason if that is not possible."""
    if not shutil.which("java"):
        return "Java is not installed"
    if any(_LIBRARIES.glob("undertow-core-*.jar")):
        return None
    if not shutil.which("mvn"):
        return "Maven, which fetches it, is not installed"
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(_UNDERTOW / "pom.xml")]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={_LIBRARIES}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if fetched.returncode == 0 else "it could not be fetched"


@contextmanager
def _undertow() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = ["java", "-cp", f"{_LIBRARIES}/*", str(_UNDERTOW / "Byte.java")]
    with _serving(command) as process:
        yield process, f"http://127.0.0.1:{int(_first_line(process))}/"
