"""Result folders: writing to full or read-only disks, and reading folders with other content."""

import csv
import io
import json
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from msgspec import structs

from loadtest import read_result
from loadtest.errors import ResultError, RunError
from loadtest.report import artifacts
from loadtest.result.documents import replace_file
from loadtest.result.folder import claimed
from loadtest.result.schema import Histograms
from loadtest.runner import single
from loadtest.runner.building.result import build_result
from loadtest.workers.child import PYTHON
from subjectbus import UsageError, cli
from tests.conftest import skip
from tests.loadtest import samples
from tests.servers import ROOT

FILES = [
    "environment.json", "latency.hgrm", "latency.hlog", "report.html", "report.md", "result.json",
    "timeline.parquet",
]  # fmt: skip
RUN = ["loadtest", "run", "autocomplete", "--set", "users=20", "--set", "providers=2", "--set", "rate=200"]
RUN += ["--set", "warmup_s=0.2", "--set", "duration_s=1", "--set", "thresholds=[]", "--quiet"]
RUN += ["--set", "max_send_lag_ms=0"]


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(folder):
    result, logged = build_result(samples.collected(samples.values_ns(2000)))
    with claimed(folder):
        artifacts.write_folder(result, logged, folder)
    return result


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A result folder, to be read only."""
    folder = tmp_path_factory.mktemp("written") / "run"
    write(folder)
    return folder


@pytest.fixture
def copy(written, tmp_path):
    """One that may be changed."""
    return shutil.copytree(written, tmp_path / "run")


@contextmanager
def mounted(folder, options: str):
    """A file system of its own, as small or as closed as the options make it."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        skip("mounting a small file system needs root and mount(8)")
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "subjectbus-test", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the kernel does not permit a mount: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def command(*arguments, folder, **options):
    return subprocess.run(
        [*PYTHON, "subjectbus", *arguments, "--out", str(folder)],
        capture_output=True, text=True, timeout=200, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("ran") / "run"
    ended = command(*RUN, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.process
def test_a_run_leaves_every_file_and_nothing_else(ran):
    assert names(ran) == FILES
    result = read_result(ran)
    assert sum(map(sum, result.heatmap.counts)) == result.latency_us.count
    first = next(sample.t_s for sample in result.timeline if sample.phase == "measuring")
    assert result.scenario["warmup_s"] <= result.measured_from_s <= first


def test_the_log_is_read_by_another_reader_and_has_the_percentiles_of_the_result(written):
    result = read_result(written)
    reader = HistogramLogReader(str(written / "latency.hlog"), HdrHistogram(1, 3_600_000_000_000, 3))
    merged = HdrHistogram(1, 3_600_000_000_000, 3)
    while (interval := reader.get_next_interval_histogram()) is not None:
        merged.add(interval)
    reader.close()
    latency = result.latency_us
    assert merged.get_total_count() == latency.count
    told = {name: merged.get_value_at_percentile(at) / 1000 for name, at in (("p50", 50), ("p99", 99))}
    assert told == {"p50": latency.p50, "p99": latency.p99}
    assert merged.get_value_at_percentile(99.9) / 1000 == latency.p99_9
    assert merged.get_max_value() / 1000 == pytest.approx(latency.max, rel=1e-3)


def fill(folder) -> None:
    """Leaves no byte free."""
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.process
def test_a_full_disk_is_reported_and_no_file_is_incomplete(tmp_path, ran):
    sizes = {path.name: path.stat().st_size for path in ran.iterdir()}
    room = sum(sizes.values()) - sizes["report.html"] // 2
    with mounted(tmp_path / "disk", f"size={room}") as disk:
        folder = disk / "run"
        ended = command(*(word for word in RUN if word != "--quiet"), folder=folder)
        assert ended.returncode == 3
        *told, last = ended.stderr.splitlines()
        assert any("conservation holds" in line for line in told)  # what was measured is said all the same
        assert last.startswith(f"subjectbus: error: result folder {folder}: report.html: No space left")
        assert "only result.json, latency.hlog, environment.json" in last
        assert names(folder) == [name for name in FILES if name != "report.html"]
        result = read_result(folder)
        assert (result.error, result.conservation.holds) == (None, True)
        assert result.achieved.received == result.latency_us.count


@pytest.mark.process
def test_a_disk_that_is_full_before_the_run_is_reported_at_once(tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as disk:
        fill(disk)
        ended = command(*RUN, folder=disk / "run")
        assert ended.returncode == 2
        assert ended.stderr == f"subjectbus: error: result folder {disk / 'run'}: No space left on device\n"
        assert names(disk) == ["ballast"]


@pytest.mark.process
def test_a_folder_that_is_not_writable_is_reported_before_the_run(tmp_path):
    with mounted(tmp_path / "disk", "ro") as disk:
        for folder in (disk, disk / "run"):
            ended = command(*RUN, folder=folder)
            assert ended.returncode == 2
            assert ended.stderr == f"subjectbus: error: result folder {folder}: Read-only file system\n"


@pytest.mark.process
def test_a_report_that_does_not_fit_leaves_the_earlier_one(tmp_path, written, capsys):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        shutil.copytree(written, disk / "run")
        before = {name: (disk / "run" / name).read_bytes() for name in FILES}
        fill(disk)
        assert cli.main(["loadtest", "report", str(disk / "run")]) == 3
        assert "No space left on device; nothing could be written" in capsys.readouterr().err
        assert {name: (disk / "run" / name).read_bytes() for name in names(disk / "run")} == before


@pytest.mark.process
@pytest.mark.parametrize(
    ("largest", "whole"),
    [("environment.json", []), ("report.html", [name for name in FILES if name != "report.html"])],
)
def test_a_file_that_reaches_its_size_limit_is_not_left_incomplete(tmp_path, written, largest, whole):
    least = (written / largest).stat().st_size - 1
    script = (
        # The checkout comes last: it has sources without the built extension.
        f"import sys; sys.path += [{str(ROOT)!r}, {str(ROOT / 'benchmarks')!r}]\n"
        "from pathlib import Path; from tests.loadtest.test_result_folder import write\n"
        "from loadtest.errors import RunError\n"
        "try: write(Path(sys.argv[1]))\n"
        "except RunError as error: sys.exit(str(error))"
    )
    ended = subprocess.run(
        ["prlimit", f"--fsize={least}", *PYTHON[:2], "-c", script, str(tmp_path / "run")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert "File too large" in ended.stderr
    assert (names(tmp_path / "run") if whole else names(tmp_path)) == whole


def test_a_write_that_fails_names_the_file(tmp_path):
    result, logged = build_result(samples.collected(samples.values_ns(100)))
    (tmp_path / "run" / "environment.json").mkdir(parents=True)
    with pytest.raises(RunError, match=r"environment\.json: .*; only result\.json, latency\.hlog could be"):
        artifacts.write_folder(result, logged, tmp_path / "run")
    assert ".environment.json.part" not in names(tmp_path / "run")


def broken(text: str, how: str) -> bytes:
    """A result.json that is none any more."""
    return {
        "empty": b"",
        "truncated": text.encode()[: len(text) // 2],
        "cut within a character": text.encode()[:100] + "\N{EURO SIGN}".encode()[:2],
        "binary": bytes(range(256)),
        "text": b"no JSON at all\n",
        "deep": b'{"schema": 1, "scenario": {"a": ' + b"[" * 1_000_000,
        "list": b"[]",
        "other program's": b'{"results": []}',
        "other schema": text.replace('"schema": 1', '"schema": 2', 1).encode(),
        "schema of another type": text.replace('"schema": 1', '"schema": "one"', 1).encode(),
        "long schema": text.replace('"schema": 1', f'"schema": "{"z" * 5000}"', 1).encode(),
        "missing key": text.replace('"latency_us"', '"latency_s"', 1).encode(),
        "wrong type": text.replace('"duration_s": 2.0', '"duration_s": "two"', 1).encode(),
    }[how]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("empty", "truncated or not JSON"),
        ("truncated", "truncated or not JSON"),
        ("cut within a character", "truncated or not JSON"),
        ("binary", "truncated or not JSON"),
        ("text", "truncated or not JSON"),
        ("deep", "truncated or not JSON"),
        ("list", "Expected `object`, got `array`"),
        ("other program's", 'has no key "schema"'),
        ("other schema", "has schema 2, but this version reads schema 1 ("),
        ("schema of another type", "has schema 'one', but this version reads schema 1 ("),
        ("long schema", "zzz', but this version reads schema 1 ("),
        ("missing key", "missing required field `latency_us`"),
        ("wrong type", "Expected `float`, got `str` - at `$.duration_s`"),
    ],
)
@pytest.mark.parametrize("form", ["html", "markdown", "csv"])
def test_an_invalid_result_gives_one_line_and_is_not_rendered(copy, capsys, how, said, form):
    folder = copy
    path = folder / "result.json"
    path.write_bytes(broken(path.read_text(), how))
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    assert cli.main(["loadtest", "report", str(folder), "--format", form]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith(f"subjectbus: error: {path}: ")
    assert len(told.err) < 300 + len(str(path))
    assert said in told.err
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before


@pytest.mark.parametrize("kind", ["absent", "file", "empty", "folder in its place"])
def test_a_folder_that_is_not_a_result_folder_is_refused_with_a_reason(tmp_path, capsys, kind):
    folder = tmp_path / "run"
    if kind == "file":
        folder.write_text("")
    elif kind != "absent":
        folder.mkdir()
    if kind == "folder in its place":
        (folder / "result.json").mkdir()
    reason = {"file": "Not a directory", "folder in its place": "Is a directory"}
    assert cli.main(["loadtest", "report", str(folder)]) == 2
    text = reason.get(kind, "No such file or directory")
    assert capsys.readouterr().err == f"subjectbus: error: {folder / 'result.json'}: {text}\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"histograms": Histograms(latency="HISTFAAAA", service=None)},
            "cannot be rendered: not an HdrHistogram",
        ),
        ({"started": "yesterday"}, "cannot be rendered: Invalid isoformat string: 'yesterday'"),
        ({"scenario": {}}, "cannot be rendered: missing key 'name'"),
        (
            {"environment": {"cores": "many"}},
            "cannot be rendered: invalid literal for int() with base 10: 'many'",
        ),
    ],
)
def test_an_impossible_value_is_reported_and_nothing_is_rendered(copy, changes, said):
    folder = copy
    result = read_result(folder)
    before = {name: (folder / name).read_bytes() for name in FILES if name != "result.json"}
    (folder / "result.json").unlink()
    artifacts.replace_file(
        folder / "result.json", artifacts.encode_document(structs.replace(result, **changes))
    )
    with pytest.raises(ResultError) as raised:
        artifacts.render_again(folder)
    assert str(raised.value).startswith(f"{folder / 'result.json'}: {said}")
    assert "\n" not in str(raised.value)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_folder_of_the_first_version_is_read_and_rendered(copy):
    table = json.loads((copy / "result.json").read_text())
    for name in ("hosts", "heatmap", "command", "missing", "measured_from_s"):
        del table[name]
    for interval in table["intervals"]:
        del interval["max_send_lag_us"]
    (copy / "result.json").write_text(json.dumps(table))
    artifacts.render_again(copy)
    assert (read_result(copy).heatmap, read_result(copy).missing) == (None, [])


def test_figures_are_printed_as_csv(written, capsys):
    result = read_result(written)
    assert cli.main(["loadtest", "report", str(written), "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["measure", "this run", "published 2016"]
    assert {len(row) for row in rows} == {3}
    figures = {row[0]: row[1:] for row in rows[1:]}
    assert len(figures) == len(rows) - 1
    assert figures["requests/s"] == ["1000", "240000"]
    assert float(figures["latency p99, ms"][0]) == pytest.approx(result.latency_us.p99 / 1000, abs=1e-6)
    assert float(figures["service time p99.9, ms"][0]) == pytest.approx(
        result.service_us.p99_9 / 1000, abs=1e-6
    )
    assert figures["latency p99, ms"][1] == "130"
    assert figures["timed out"] == ["0", ""]
    assert figures["broker CPU, % of machine"][0] == ""


def test_a_link_in_a_shared_folder_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (tmp_path / ".result.json.guessed.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "result.json", b"{}")
    assert victim.read_text() == "mine"


def test_the_command_in_a_result_repeats_the_run_into_another_folder(tmp_path, monkeypatch):
    commands = []

    def run(*_arguments, command, **_options):
        commands.append(command)
        raise UsageError("unusable")

    monkeypatch.setattr("loadtest.api.run", run)
    for out in (["--out", str(tmp_path)], [f"--out={tmp_path}"]):
        given = ["loadtest", "run", "autocomplete", *out, "--junit", str(tmp_path / "a.xml"), "--quiet"]
        monkeypatch.setattr("sys.argv", ["subjectbus", *given])
        assert cli.main(given) == 2
    assert commands == [["subjectbus", "loadtest", "run", "autocomplete", "--quiet"]] * 2


def test_a_folder_whose_name_is_too_long_is_refused(tmp_path, capsys):
    folder = tmp_path / ("x" * 300)
    assert cli.main(["loadtest", "report", str(folder)]) == 2
    assert capsys.readouterr().err == f"subjectbus: error: {folder / 'result.json'}: File name too long\n"
    assert cli.main([*RUN, "--out", str(folder)]) == 2
    assert capsys.readouterr().err == f"subjectbus: error: result folder {folder}: File name too long\n"


def test_a_folder_without_a_run_is_removed(tmp_path):
    def fail():
        with claimed(tmp_path / "run"):
            assert (tmp_path / "run").is_dir()
            raise UsageError("unusable")

    with pytest.raises(UsageError):
        fail()
    assert names(tmp_path) == []


@pytest.mark.parametrize("file", ["result.json", "capacity.json", "repeated.json"])
def test_a_folder_in_use_is_refused_before_hosts_are_connected(tmp_path, capsys, file):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(
        '[[hosts]]\nname = "a"\naddress = "nowhere.invalid"\nroles = ["broker", "requestor", "provider"]\n'
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / file).touch()
    assert cli.main([*RUN, "--hosts", str(hosts), "--out", str(tmp_path / "run")]) == 2
    assert "already" in capsys.readouterr().err


@pytest.mark.process
def test_collected_data_of_a_comparison_is_kept_if_no_result_can_be_built(tmp_path, capsys, monkeypatch):
    def fail(_plan, _finished):
        raise ValueError("no such transport")

    monkeypatch.setattr(single, "build_comparison", fail)
    changes = ["--set", 'transports=["tcp"]', "--set", "sequential_calls=20", "--set", "calls=100"]
    assert cli.main(["loadtest", "run", "transports", *changes, "--out", str(tmp_path / "run")]) == 3
    assert "collected.json: ValueError: no such transport" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "run" / "collected.json").read_text())) == 2


def test_the_first_fault_is_told_if_collected_data_cannot_be_kept(tmp_path):
    with (
        pytest.raises(RunError, match=r"built from the collected data \(ValueError: first\)"),
        single._kept({}, tmp_path / "absent" / "folder"),
    ):
        raise ValueError("first")


@pytest.mark.process
def test_collected_data_is_kept_if_no_result_can_be_built(tmp_path, capsys, monkeypatch):
    def fail(_collected):
        raise ValueError("histogram has 2 values, the sums have 1")

    monkeypatch.setattr(single, "build_result", fail)
    assert cli.main([*RUN, "--out", str(tmp_path / "run")]) == 3
    assert names(tmp_path / "run") == ["collected.json"]
    assert "collected.json: ValueError: histogram has 2 values" in capsys.readouterr().err
    collected = json.loads((tmp_path / "run" / "collected.json").read_text())
    assert sum(requestor["received"] for requestor in collected["requestors"]) > 0
    assert collected["timeline"]
