"""Load tests as functions: their results, errors, files and processes, also in other threads."""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import msgspec
import psutil
import pytest

import loadtest
from loadtest.errors import ArgumentError
from loadtest.scenario.load import load_scenario
from subjectbus import Server
from tests.loadtest import samples
from tests.servers import wait_until

pytestmark = pytest.mark.process

SMALL = {
    "users": 20,
    "providers": 2,
    "rate": 200,
    "warmup_s": 0.2,
    "duration_s": 1,
    "timeout_s": 5,
    # No objective of speed: the machine may be busy with other tests.
    "max_send_lag_ms": 0,
    "thresholds": ["achieved.timed_out == 0", "achieved.errors == 0"],
}


@pytest.fixture(autouse=True)
def no_process_is_left():
    """Require that a test ends the processes it started; servers of the session's other tests stay."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) - before == set()


@pytest.fixture
def nowhere():
    """Return the URL of a closed port."""
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{refusing.getsockname()[1]}"


def test_a_run_returns_its_result_and_prints_and_writes_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    result = loadtest.run("autocomplete", **SMALL)
    assert isinstance(result, loadtest.Result)
    assert result.holds
    assert result.achieved.connections == 22
    assert result.achieved.sent == result.achieved.received == pytest.approx(200, rel=0.05)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_a_folder_writes_the_files_of_the_command(tmp_path, capfd):
    result = loadtest.run("autocomplete", out=tmp_path / "run", **SMALL)
    assert json.loads((tmp_path / "run" / "result.json").read_bytes()) == json.loads(
        msgspec.json.encode(result)
    )
    assert (tmp_path / "run" / "report.html").exists()
    assert capfd.readouterr() == ("", "")


def test_the_command_in_the_result_repeats_the_run(tmp_path):
    changes = {**SMALL, "broker": {"shards": 1}, "arrivals": "poisson", "seed": 7, "soak": None}
    cpu = min(os.sched_getaffinity(0))
    result = loadtest.run("autocomplete", load_cpus=[cpu], **changes)
    words = shlex.split(shlex.join(result.command))
    assert words[:4] == ["subjectbus", "loadtest", "run", "autocomplete"]
    assert words[-2:] == ["--load-cpus", str(cpu)]
    sets = [text for flag, text in pairwise(words) if flag == "--set"]
    assert msgspec.to_builtins(load_scenario("autocomplete", sets)) == result.scenario
    assert loadtest.run(load_scenario("autocomplete", SMALL)).command == []


@pytest.mark.parametrize("kind", ["name", "path", "text", "object"])
def test_a_scenario_is_a_name_a_path_or_an_object(tmp_path, kind):
    path = tmp_path / "mine.toml"
    path.write_text('users = 20\nproviders = 2\nrate = 200\nbroker = { server_name = "mine" }\n')
    plan = {
        "name": "autocomplete",
        "path": path,
        "text": str(path),
        "object": loadtest.Scenario(users=20, providers=2, rate=200),
    }[kind]
    changes = {**SMALL, "broker.shards": 1}
    result = loadtest.run(plan, **changes)
    assert result.scenario["name"] == {"name": "autocomplete", "object": "scenario"}.get(kind, "mine")
    assert result.scenario["duration_s"] == 1
    assert result.scenario["broker"]["shards"] == 1
    assert result.scenario["broker"].get("server_name") == ("mine" if kind in ("path", "text") else None)


def test_a_target_is_an_embedded_broker_whose_monitor_is_read():
    with Server() as server:
        urls = server.ws_url, server.monitor_url
        result = loadtest.run("autocomplete", target=urls[0], monitor=urls[1], **SMALL)
    assert result.holds
    assert result.agreement
    assert result.command[-4:] == ["--target", urls[0], "--monitor-url", urls[1]]


def test_samples_come_once_a_second_and_at_each_change_of_phase(capfd):
    samples_seen: list[loadtest.Sample] = []
    loadtest.run("autocomplete", progress=samples_seen.append, **SMALL)
    phases = [sample.phase for sample in samples_seen]
    assert "measuring" in phases
    assert all(isinstance(sample, loadtest.Sample) for sample in samples_seen)
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_on_standard_error(capfd):
    loadtest.run("autocomplete", progress=True, **SMALL)
    said = capfd.readouterr()
    assert said.out == ""
    assert "measuring" in said.err
    assert "writing results" in said.err


def test_a_threshold_that_fails_does_not_raise_an_error():
    result = loadtest.run("autocomplete", **{**SMALL, "thresholds": ["latency_us.p50 < 0.001"]})
    assert not result.holds


def test_a_run_that_fails_raises_an_error_with_the_collected_data(tmp_path, nowhere):
    with pytest.raises(loadtest.RunError, match=r"unreachable: Connection refused") as raised:
        loadtest.run("autocomplete", target=nowhere, out=tmp_path / "run", **SMALL)
    assert isinstance(raised.value.result, loadtest.Result)
    assert raised.value.result.error == str(raised.value)
    assert loadtest.read_result(tmp_path / "run").error == str(raised.value)


@pytest.mark.parametrize(
    ("scenario", "changes", "error", "text"),
    [
        ("autocomplet", {}, loadtest.ScenarioError, 'did you mean "autocomplete"'),
        ("absent.toml", {}, loadtest.ScenarioError, "absent.toml: No such file"),
        ("autocomplete", {"usres": 1}, loadtest.ScenarioError, 'did you mean "users"'),
        ("autocomplete", {"users": 0}, loadtest.ScenarioError, "users=0: users: expected int >= 1"),
        ("autocomplete", {"users": "x" * 500}, loadtest.ScenarioError, "users: expected int"),
        ("autocomplete", {"thresholds": ["p99 < 5"]}, loadtest.ThresholdError, 'no number "p99"'),
        ("autocomplete", {"target": "ftp://x"}, loadtest.TargetError, "ftp://x"),
        ("autocomplete", {"hosts": "absent.toml"}, loadtest.HostsFileError, "absent.toml"),
        ("autocomplete", {"load_cpus": "x"}, loadtest.UsageError, 'processor list "x"'),
        (
            "autocomplete",
            {"users": object()},
            loadtest.ScenarioError,
            "users: expected a value that TOML has",
        ),
        ("autocomplete", {"load_cpus": ()}, loadtest.UsageError, 'processor list ""'),
        ("autocomplete", {"server_pid": 1}, ArgumentError, "server_pid: needs a target"),
        ("autocomplete", {"monitor": "h"}, ArgumentError, "monitor: needs a target"),
        (
            "autocomplete",
            {"target": "nats://127.0.0.1:1", "broker_cpus": "0"},
            ArgumentError,
            "broker_cpus: cannot be used with a target",
        ),
        (
            "autocomplete",
            {"hosts": "x.toml", "load_cpus": "0"},
            ArgumentError,
            "load_cpus: applies to this machine",
        ),
        (loadtest.Scenario(users=-1, rate=1), {}, loadtest.ScenarioError, "users: expected int >= 1"),
        (loadtest.Scenario(users=1), {}, loadtest.ScenarioError, "scenario scenario: "),
    ],
)
def test_unusable_arguments_are_typed_errors_in_one_line(
    tmp_path, monkeypatch, scenario, changes, error, text
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as raised:
        loadtest.run(scenario, out="results/run", **changes)
    assert isinstance(raised.value, loadtest.UsageError)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused_before_anything_is_started(tmp_path, nowhere):
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(loadtest.ResultError, match="already has a result"):
        loadtest.run("autocomplete", target=nowhere, out=tmp_path, **SMALL)


def test_no_argument_has_the_name_of_a_scenarios_key():
    keys = {key for kind in (loadtest.Scenario, loadtest.BroadcastScenario) for key in kind.__struct_fields__}
    for function in (loadtest.run, loadtest.repeat, loadtest.capacity):
        # `monitor` means the same in both.
        assert keys & set(function.__kwdefaults__) == {"monitor"}


def test_runs_in_several_threads_at_the_same_time():
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(loadtest.run, "autocomplete", **SMALL) for _ in range(2)]
        results = [run.result(60) for run in runs]
    assert all(result.holds for result in results)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("writes", [True, False])
def test_ctrl_c_is_a_keyboard_interrupt_after_the_processes_have_ended(tmp_path, writes):
    folder = tmp_path / "run" if writes else None
    children = []

    def interrupt(sample):
        if sample.phase == "measuring" and not children:
            children.extend(psutil.Process().children(recursive=True))
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        loadtest.run("autocomplete", progress=interrupt, out=folder, **{**SMALL, "duration_s": 60})
    assert len(children) >= 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if folder is not None:
        assert loadtest.read_result(folder).error == "interrupted"


def test_a_handler_of_the_program_gets_its_signal_after_the_run():
    got = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:

        def terminate(sample):
            if sample.phase == "measuring":
                assert got == []
                signal.raise_signal(signal.SIGTERM)

        with pytest.raises(loadtest.RunError, match="interrupted"):
            loadtest.run("autocomplete", progress=terminate, **{**SMALL, "duration_s": 60})
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert got == [signal.SIGTERM]


def test_a_program_that_is_terminated_ends_by_that_signal_and_leaves_its_results(tmp_path):
    code = f"""
import loadtest
def show(sample):
    print(sample.phase, flush=True)
loadtest.run("autocomplete", progress=show, out={str(tmp_path / "run")!r}, **{ {**SMALL, "duration_s": 60}!r})
"""
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
    with process:
        for line in process.stdout:
            if line == "measuring\n":
                process.send_signal(signal.SIGTERM)
                break
        process.stdout.read()
        assert process.wait(60) == -signal.SIGTERM
    assert loadtest.read_result(tmp_path / "run").error == "interrupted"


def test_repeated_runs_and_a_comparison_of_them(tmp_path):
    summary = loadtest.repeat("autocomplete", 2, out=tmp_path / "twice", **SMALL)
    assert isinstance(summary, loadtest.Repeated)
    assert summary.holds
    assert summary.command[-2:] == ["--repeat", "2"]
    results = [loadtest.read_result(tmp_path / "twice" / run) for run in summary.runs]
    comparison = loadtest.compare(
        [tmp_path / "twice", str(tmp_path / "twice" / "run-1"), results[1], results]
    )
    assert isinstance(comparison, loadtest.Comparison)
    assert list(comparison.names) == ["twice", "run-1", "result 3", "result 4"]
    assert list(comparison.runs) == [2, 1, 1, 2]


def test_repeated_runs_without_a_folder_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loadtest.repeat("autocomplete", 2, **SMALL).runs == ["run-1", "run-2"]
    assert list(tmp_path.iterdir()) == []


def test_a_series_that_fails_raises_an_error_with_its_summary(nowhere):
    with pytest.raises(loadtest.RunError, match="run-1: target") as raised:
        loadtest.repeat("autocomplete", 3, target=nowhere, **SMALL)
    assert isinstance(raised.value.result, loadtest.Repeated)
    assert raised.value.result.asked == 3


def test_a_search_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = {key: value for key, value in SMALL.items() if key != "duration_s"}
    found = loadtest.capacity(
        "autocomplete", slo="achieved.errors == 0", from_rate=50, to_rate=100, probe_s=1, **changes
    )
    assert isinstance(found, loadtest.Capacity)
    assert found.ending in ("at_most", "found", "none")
    assert found.objectives == ["achieved.errors == 0"]
    assert found.probes[0].rate == 50
    assert list(tmp_path.iterdir()) == []
    given = found.command[found.command.index("--slo") :]
    assert given[:6] == ["--slo", "achieved.errors == 0", "--from", "50", "--to", "100"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"slo": ["latency_us.p98 < 1"]}, 'no number "latency_us.p98"'),
        ({"from_rate": float("nan")}, "from_rate: expected a rate above 0"),
        ({"from_rate": 5, "to_rate": 1}, "to_rate: 1 is below the lowest rate, 5"),
        ({"precision": 0.9}, "precision: expected a share from 0.0005 to 0.5, got 0.9"),
        ({"probe_s": 0}, "probe_s: expected at least 1 s, got 0"),
        ({"rate": 0, "outstanding": 5}, "needs an open loop"),
    ],
)
def test_an_impossible_search_is_refused(tmp_path, options, text):
    with pytest.raises(loadtest.UsageError) as raised:
        loadtest.capacity("autocomplete", out=tmp_path / "search", **options)
    assert text in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_of_results_by_name():
    base = samples.result(500)
    slower = msgspec.structs.replace(base, latency_us=msgspec.structs.replace(base.latency_us, p99=10**7))
    comparison = loadtest.compare({"before": base, "after": slower}, judge=["latency_us.p99"])
    assert list(comparison.names) == ["before", "after"]
    (regression,) = comparison.regressions
    assert regression.startswith("latency p99, ms: ")
    assert loadtest.compare([base, base]).regressions == []


@pytest.mark.parametrize(
    ("runs", "options", "text"),
    [
        ([], {}, "runs: 2 results or more are needed, got 0"),
        (["one"], {}, "runs: 2 results or more are needed, got 1"),
        (["a", "b"], {}, "result.json: No such file"),
        ([[], []], {}, "result 1: has no runs"),
        (["a", "b"], {"tolerance": -1}, "tolerance: expected a percentage of at least 0"),
        (["a", "b"], {"tolerance": float("nan")}, "tolerance: expected"),
    ],
)
def test_runs_that_cannot_be_compared_give_a_one_line_error(tmp_path, monkeypatch, runs, options, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(loadtest.UsageError) as raised:
        loadtest.compare(runs, **options)
    assert text in str(raised.value)


def test_the_package_is_imported_and_listed_without_heavy_modules():
    code = "import sys, loadtest; dir(loadtest); print({'loadtest.api', 'jinja2'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


def test_a_function_is_not_replaced_by_the_module_of_its_name():
    code = "import loadtest.api, loadtest.runner.execution, loadtest; print(callable(loadtest.run))"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


def test_a_run_within_an_event_loop():
    async def measure():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        result = await asyncio.to_thread(loadtest.run, "autocomplete", **SMALL)
        ticking.cancel()
        return result, ticks

    result, ticks = asyncio.run(measure())
    assert result.holds
    assert ticks > 3
    wait_until(lambda: not any(thread.name == "monitor" for thread in threading.enumerate()))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: loadtest.run(None),
            loadtest.ScenarioError,
            "scenario: expected a name, a path or a scenario",
        ),
        (lambda: loadtest.compare("results/a"), ArgumentError, "runs: expected a list of folders or results"),
        (lambda: Server({"shards": 1}), TypeError, "config: expected a BrokerConfig, got dict"),
    ],
)
def test_an_argument_of_another_type_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()
