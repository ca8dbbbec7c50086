"""Reports of searches and repeated runs: texts stay texts, commands can be copied, bad files are named."""

import json

import pytest
from msgspec import structs

from loadtest.experiments.capacity import find_capacity, plan_search
from loadtest.experiments.repeat import summarise_runs
from loadtest.report import capacity
from loadtest.result.documents import write_document
from loadtest.workers.interrupts import Interrupts
from subjectbus.cli import main
from tests.loadtest import samples
from tests.loadtest.queues import Queue
from tests.loadtest.rendered import as_markdown, as_page, as_terminal

COMMAND = ["subjectbus", "loadtest", "run", "my scenario.toml"]
SHOWN = "subjectbus loadtest run 'my scenario.toml'"


def search(folder, *, name="sample", slos=("latency_us.p99 < 100000",)):
    plan = plan_search(
        samples.scenario(name=name), slos, from_rate=100.0, to_rate=100.0, precision=0.02, probe_s=1.0
    )
    return find_capacity(plan, folder, Queue(20_000.0).run_into, Interrupts(), str)


def series(**changes):
    return summarise_runs({f"run-{number}": samples.result(20, **changes) for number in (1, 2)})


def test_the_command_of_an_experiment_can_be_copied(tmp_path):
    found = structs.replace(search(tmp_path), command=COMMAND)
    made = structs.replace(series(), command=COMMAND)
    for html, markdown in (
        (as_page(found), as_markdown(found)),
        (as_page(made), as_markdown(made)),
    ):
        assert SHOWN.replace("'", "&#39;") in html
        assert SHOWN in markdown
        assert "subjectbus subjectbus" not in html + markdown
    assert f"\n```sh\n{SHOWN}\n```\n" in as_markdown(made)


def test_an_objective_on_a_count_is_not_drawn_as_latency(tmp_path):
    found = search(tmp_path, slos=("latency_us.count < 1e9", "latency_us.stddev < 5000"))
    chart = capacity.draw_latency(found)
    assert chart.table.columns[2:] == ["p50, ms", "p99, ms", "p99.9, ms", "standard deviation, ms"]
    assert [label.text for label in chart.drawing.labels] == ["objective: standard deviation below 5 ms"]


def test_names_are_not_taken_as_markup_on_the_terminal(tmp_path):
    name = "r[red] [/x]"
    assert f"Capacity of {name}" in as_terminal(search(tmp_path, name=name))
    made = series(scenario={"name": name})
    assert f"{name}, 2 of 2 runs" in as_terminal(made)


@pytest.mark.parametrize("kind", ["capacity", "repeated"])
@pytest.mark.parametrize("form", ["html", "markdown"])
def test_an_impossible_document_is_named_and_not_rendered(tmp_path, capsys, kind, form):
    path = tmp_path / f"{kind}.json"
    write_document(search(tmp_path) if kind == "capacity" else series(), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "scenario": {}}))
    before = sorted(tmp_path.iterdir())
    assert main(["loadtest", "report", str(tmp_path), "--format", form]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"subjectbus: error: {path}: cannot be rendered: missing key 'name'\n"
    assert sorted(tmp_path.iterdir()) == before
