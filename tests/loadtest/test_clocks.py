"""Workers with different monotonic clocks, which time namespaces give them on one machine."""

import shutil
import subprocess
import time
from contextlib import ExitStack

import msgspec
import pytest
from msgspec import structs

from loadtest import load_scenario
from loadtest.runner.shares import share_broadcast, share_providers, share_requests
from loadtest.workers.child import PYTHON
from loadtest.workers.messages import (
    Command,
    Configure,
    Connect,
    EngineConfig,
    Event,
    Finished,
    Reported,
    Start,
)
from tests.conftest import skip
from tests.servers import Broker

pytestmark = pytest.mark.process

AHEAD_S = 5000
START_DELAY_NS = 300_000_000


def elsewhere():
    """The command that runs another one where the monotonic clock is ahead."""
    command = ["unshare", "--time", f"--monotonic={AHEAD_S}", "--fork", "--kill-child"]
    if shutil.which("unshare") is None:
        skip("unshare is not installed (util-linux)")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no time namespace: {tried.stderr.strip()}")
    return command


class Worker:
    """A worker and what it has said."""

    def __init__(self, stack, prefix=()):
        pipe = subprocess.PIPE
        command = [*prefix, *PYTHON, "loadtest.workers.worker"]
        self._process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
        self.times_s = []

    def tell(self, command: Command):
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        self._process.stdin.flush()

    def wait_for(self, phase):
        """Until it reports this phase, or its result where that is "done"."""
        for line in self._process.stdout:
            match msgspec.json.decode(line, type=Event):
                case Reported(progress, at_s):
                    assert progress.error is None, progress
                    self.times_s.append(at_s)
                    if progress.phase == phase != "done":
                        return None
                case Finished() as finished:
                    return finished
                case failed:
                    raise AssertionError(failed)
        raise AssertionError("the worker has ended")


def connect(worker, **role):
    worker.tell(Configure(**role))
    worker.tell(Connect())
    worker.wait_for("connected")
    return worker


def there(config):
    """The same for a worker elsewhere."""
    return structs.replace(config, clock_offset_ns=AHEAD_S * 1_000_000_000)


@pytest.fixture
def engine(tmp_path):
    broker = Broker.start(tmp_path)
    address = "{}:{}".format(*broker.tcp)
    yield EngineConfig(transport="tcp", address=address, host=address, path="/", driver="auto")
    broker.stop()


def check_times(began_s, *workers):
    """Check that all times are on this process's clock."""
    for worker in workers:
        assert worker.times_s == sorted(worker.times_s)
        assert began_s < worker.times_s[0] < worker.times_s[-1] < time.monotonic()


@pytest.mark.parametrize("publishing", [0, 1])
def test_a_broadcast_between_clocks(engine, publishing):
    settings = ["users=20", "processes=2", "rate=50", "warmup_s=0.5", "duration_s=1", "transport=tcp"]
    scenario = load_scenario("broadcast", settings)
    shares = [share_broadcast(scenario, engine, index) for index in (0, 1)]
    shares[publishing] = there(shares[publishing])
    prefixes = [elsewhere() if index == publishing else () for index in (0, 1)]
    began_s = time.monotonic()
    with ExitStack() as stack:
        workers = [
            connect(Worker(stack, prefix), broadcaster=share)
            for prefix, share in zip(prefixes, shares, strict=True)
        ]
        start_ns = time.monotonic_ns() + START_DELAY_NS
        for worker in reversed(workers):
            worker.tell(Start(start_ns))
        results = [worker.wait_for("done").broadcaster for worker in workers]
        check_times(began_s, *workers)
    end_ns = time.monotonic_ns()
    for result in results:
        assert (result.received, result.expected, result.missing) == (500, 500, 0)
        assert (result.misrouted, result.corrupt, result.duplicates) == (0, 0, 0)
        assert 0 < result.latency.min_ns <= result.latency.max_ns < end_ns - start_ns
        assert len(result.messages) == 50
        assert all(start_ns < first <= last < end_ns for _, _, first, last in result.messages)


def test_requests_begin_together_by_different_clocks(engine):
    settings = ["users=20", "requestors=2", "rate=200", "warmup_s=0.5", "duration_s=1", "transport=tcp"]
    stall = "provider_delay={delay_ms=200, for_s=10, every_s=10}"
    scenario = load_scenario("autocomplete", [*settings, stall])
    shares = [share_requests(scenario, engine, index) for index in (0, 1)]
    began_s = time.monotonic()
    with ExitStack() as stack:
        provider = connect(Worker(stack, elsewhere()), provider=there(share_providers(scenario, engine)))
        workers = [
            connect(Worker(stack), requestor=shares[0]),
            connect(Worker(stack, elsewhere()), requestor=there(shares[1])),
        ]
        start_ns = time.monotonic_ns() + START_DELAY_NS
        for worker in (provider, *workers):
            worker.tell(Start(start_ns))
        results = [worker.wait_for("done").requestor for worker in workers]
        end_ns = time.monotonic_ns()
        check_times(began_s, *workers)
    assert end_ns - start_ns > 1.5e9
    for result in results:
        assert (result.sent, result.received, result.warmup.sent) == (100, 100, 50)
        assert result.max_send_lag_ns < end_ns - start_ns
        # The stall has begun with the others' start.
        assert 200e6 <= result.latency.min_ns <= result.latency.max_ns < end_ns - start_ns
