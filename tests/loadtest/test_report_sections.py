"""What report.html shows of a run over several machines, and of runs that have less."""

import itertools
import math
import re
import shlex

import msgspec
import pytest
from msgspec import structs

from loadtest import load_scenario
from loadtest.report import transports
from loadtest.report.charts import distribution, over_time
from loadtest.report.charts.over_time import planned_rates
from loadtest.report.charts.svg import HEAT_LEVELS, SERIES, line_style
from loadtest.report.document import Code
from loadtest.result.broker_view import BrokerSample
from loadtest.result.metrics import number_text
from loadtest.result.schema import Heatmap, Interval, Result
from loadtest.runner.building.result import build_result
from loadtest.scenario.kinds import FetchScenario, SoakPlan
from loadtest.scenario.profile import Ramp
from subjectbus import BrokerConfig
from tests.loadtest import samples, test_broadcast, test_transports
from tests.loadtest.rendered import as_page, document, tables
from tests.loadtest.test_report import Page

FIGURES = [
    "throughput",
    "percentiles",
    "latency-time",
    "heatmap",
    "send-lag",
    "host-cpu",
    "host-memory",
    "host-net-in",
    "host-net-out",
    "host-switches",
    "host-retransmits",
    "process-cpu",
    "process-memory",
    "errors",
]


@pytest.fixture(scope="module")
def run() -> Result:
    return samples.four_hosts(60, 50)


@pytest.fixture(scope="module")
def page(run) -> str:
    return as_page(run)


@pytest.fixture(scope="module")
def plain() -> str:
    """The report of a run of the same machine that went well."""
    return as_page(samples.result())


def figures(page: str) -> list[str]:
    return re.findall(r'<figure id="([^"]+)">', page)


def test_a_run_over_several_machines_has_every_chart(page):
    assert figures(page) == FIGURES
    parsed = Page(page)
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in parsed.tags if tag == "a"]
    assert all(link.removeprefix("#") in ids for link in links)
    for words in ("Requested against achieved", "Send lag", "Errors by kind", "How to reproduce it"):
        assert words in parsed.text
    assert "nan" not in page


def test_each_chart_has_its_figures_as_a_table(run, page):
    for name in FIGURES:
        (figure,) = re.findall(rf'<figure id="{name}">(.*?)</figure>', page, re.DOTALL)
        assert len(re.findall(r"<tr>", figure)) > 1
        assert "The values as a table" in figure
    latency = over_time.latency_chart(run).table
    assert latency.columns == ["from second (highest of 3.0 s)", "maximum", "p99", "p50"]
    highest = [max(second.max_us for second in run.intervals[at : at + 3]) / 1000 for at in range(0, 57, 3)]
    assert [row[1] for row in latency.rows[:19]] == [number_text(value) for value in highest]


def test_failures_and_missing_results_come_first(plain):
    result = samples.four_hosts(20, 20, lost=True, missing=["requestor 2 on host c: no result"])
    page = as_page(structs.replace(result, intervals=[], histograms=None, timeline=[], heatmap=None))
    head = page.partition("<main>")[0]
    assert "host c was lost: no answer for 5 s" in head
    assert "requestor 2 on host c: no result" in head
    assert "threshold latency_us.p99_9 &lt; 50000: 51,234.5" in head
    assert "c (requestor), lost" in page
    assert "Not everything is here" not in plain
    assert 'class="failures"' not in plain


def test_the_planned_rate_follows_the_profile():
    plan = samples.scenario(rate=100.0, duration_s=4.0, profile=Ramp(from_=0.0, to=2.0))
    result = samples.result(scenario=msgspec.to_builtins(plan))
    seconds = [second(at, at + 1) for at in range(3)] + [second(3, 4.5)]
    assert planned_rates(result, seconds) == pytest.approx([25, 75, 125, 175 / 1.5])
    closed = samples.scenario(rate=0.0, outstanding=8)
    for table in (msgspec.to_builtins(closed), {"name": "old", "rate": 3.0}):
        assert planned_rates(samples.result(scenario=table), seconds) is None
    drawn = over_time.throughput_chart(structs.replace(result, intervals=seconds[:3])).table
    assert drawn.columns == ["second", "requests planned", "requests sent", "replies received"]
    assert drawn.rows[0] == ["0.0", "25", "10", "9"]


def test_in_a_broadcast_the_planned_rate_counts_deliveries():
    result = build_result(test_broadcast.collected(test_broadcast.broadcaster()))[0]
    drawn = over_time.throughput_chart(result).table
    assert drawn.columns[1:] == ["deliveries planned", "deliveries due", "deliveries received"]
    assert drawn.rows[0][1:3] == ["1,000", "1,000"]


def second(start_s: float, end_s: float, **changes) -> Interval:
    plain = Interval(start_s=start_s, end_s=end_s, sent=10, received=9, p50_us=1.0, p99_us=2.0, max_us=3.0)
    return structs.replace(plain, **changes)


def test_the_send_lag_is_shown_by_second_if_it_is_known(run, page, plain):
    assert over_time.send_lag_chart(run).table.columns[1] == "longest in the second"
    assert "2.30 ms after their planned time" in Page(page).text
    assert over_time.send_lag_chart(structs.replace(run, intervals=[second(0, 1)])) is None
    assert "By the second it is not known" in plain
    closed = structs.replace(run, requested=structs.replace(run.requested, rate=None))
    assert over_time.send_lag_chart(closed) is None
    bare = structs.replace(closed, intervals=[], histograms=None, timeline=[], heatmap=None, hosts=[])
    assert "no schedule that it could miss" in as_page(bare)


def test_the_cells_of_the_heat_map_cover_each_count_once_and_no_other(run):
    grid = run.heatmap
    bounds = distribution.levels(max(map(max, grid.counts)))
    covered = {}
    for level, cells in distribution.by_level(grid, bounds).items():
        for column, first, end in cells:
            for row in range(first, end):
                assert (column, row) not in covered
                covered[column, row] = level
    for column, counts in enumerate(grid.counts):
        for row, count in enumerate(counts):
            level = covered.get((column, row))
            assert (level is None) == (count == 0)
            if level is not None:
                assert bounds[level] <= count
                assert level + 1 == len(bounds) or count < bounds[level + 1]


def test_the_table_of_the_heat_map_has_all_counts(run):
    table = distribution.tabulate(run.heatmap)
    assert len(table.rows) <= 20
    assert table.columns[1:4] == ["from 0.01 ms", "from 0.1 ms", "from 1 ms"]
    counted = sum(int(text.replace(",", "")) for row in table.rows for text in row[1:])
    assert counted == sum(map(sum, run.heatmap.counts)) == 3000


@pytest.mark.parametrize(
    ("highest", "bounds"), [(1, [1]), (3, [1, 2, 3]), (10**8, [10**n for n in range(8)])]
)
def test_levels_grow_by_the_same_factor(highest, bounds):
    assert distribution.levels(highest) == bounds
    assert len(bounds) <= HEAT_LEVELS


@pytest.mark.parametrize("edges", [[0.0, 1.0], [1000.0], [0.5, 1.0, 2.0]])
def test_a_heat_map_of_any_edges_is_drawn(edges):
    one = Heatmap(starts_s=[0.0], end_s=0.2, edges_us=edges, counts=[[1] * len(edges)])
    drawn = distribution.heatmap_chart(one, "replies").drawing
    assert sum(shape.path.count("M") for shape in drawn.shapes) == 1
    assert drawn.data["cells"]["counts"] == [" ".join("1" for _ in edges)]
    empty = structs.replace(one, counts=[[0] * len(edges)])
    assert distribution.heatmap_chart(empty, "replies") is distribution.heatmap_chart(None, "replies") is None


def test_every_kind_of_error_that_occurred_is_listed_with_its_count(run, plain):
    achieved = structs.replace(
        run.achieved, errors=1, duplicates=2, corrupt=3, unmatched=4, no_responders=5, disconnected=6,
        connect_failures=7, reconnect_failures=8, server_errors=9,
    )  # fmt: skip
    conservation = structs.replace(run.conservation, dropped={"slow_consumer": 10, "none": 0})
    rows = tables(structs.replace(run, achieved=achieved, conservation=conservation), "Errors by kind")[
        0
    ].rows
    counts = {kind: count for kind, count, _ in rows}
    assert counts == {
        "timed out": "37", "failed": "1", "late": "5", "duplicate": "2", "corrupt": "3", "unmatched": "4",
        "no responders": "5", "disconnected": "6", "connect failures": "7", "reconnect failures": "8",
        "errors from the server": "9", "HTTP status 503": "12", "dropped: slow_consumer": "10",
    }  # fmt: skip
    assert tables(samples.result(), "Errors by kind") == []
    assert "There were none of any kind" in plain


def test_errors_over_time_are_the_growth_of_the_counters(run):
    looks = [
        structs.replace(
            run.timeline[0],
            t_s=2.0 * at,
            phase="measuring",
            timed_out=timed_out,
            broker=BrokerSample(t_s=2.0 * at, dropped=dropped),
        )
        for at, (timed_out, dropped) in enumerate([(0, None), (10, 0), (4, 3), (6, 3)])
    ]
    lost = structs.replace(run, timeline=looks)
    table = over_time.error_chart(lost).table
    assert table.columns == ["second", "timed out", "dropped by the broker"]
    # At 4 s the counter fell, because a worker was gone.
    assert table.rows == [["2.0", "5", "-"], ["4.0", "-", "1.50"], ["6.0", "1", "0"]]
    assert over_time.error_chart(samples.result()) is None


def codes(result: Result) -> list[str]:
    """What there is to copy: commands, and the scenario last."""
    (section,) = (one for one in document(result).sections if one.title == "How to reproduce it")
    return [block.text for block in section.blocks if isinstance(block, Code)]


@pytest.mark.parametrize(
    "plan",
    [
        samples.scenario(
            name='say "so"',
            description="two\nlines \\ and 'quotes'",
            rate=12.5,
            broker=BrokerConfig(shards=2, driver="epoll"),
            soak=SoakPlan(period_s=2.0),
            sources=("127.0.0.2", "127.0.0.3"),
            profile=Ramp(from_=0.5, to=2.0),
        ),
        test_broadcast.SCENARIO,
        FetchScenario(name="byte", users=3, outstanding=3),
        load_scenario("transports"),
    ],
)
def test_the_scenario_to_copy_equals_the_scenario_of_the_run(tmp_path, plan):
    result = samples.result(scenario=msgspec.to_builtins(plan))
    path = tmp_path / "scenario.toml"
    path.write_text(codes(result)[-1])
    assert load_scenario(str(path)) == plan


def test_the_command_equals_the_given_command(run, page):
    command, again, _ = codes(run)
    assert shlex.split(command) == run.command
    assert command in Page(page).text
    assert again == "subjectbus loadtest run scenario.toml"
    elsewhere = structs.replace(run, command=["/opt/a b/subjectbus", "loadtest", "run", "x"])
    assert codes(elsewhere)[0] == "'/opt/a b/subjectbus' loadtest run x"
    again, _ = codes(samples.result(target="nats://h:4222"))
    assert again == "subjectbus loadtest run scenario.toml --target nats://h:4222"


def test_the_seed_is_in_the_head_and_with_the_command(plain):
    text = Page(plain).text
    assert "seed 1" in text.partition("Summary")[0]
    assert "Seed: 1. All random choices of the load follow from the seed." in text


def test_each_host_has_its_environment_and_its_clock(run):
    (table,) = tables(run, "Environment")
    assert table.columns == ["", "a", "b", "c", "d"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["cores"] == ["4", "8", "12", "16"]
    assert rows["sysctl.net.core.somaxconn"] == ["-", "4096", "4096", "4096"]
    assert tables(run, "Machines")[0].rows[1] == [
        "b", "192.0.2.2", "requestor", "requestor 1", "+1,234.501000 s ± 0.080 ms", "complete",
    ]  # fmt: skip
    (alone,) = tables(samples.result(), "Environment")
    assert alone.columns == ["", "this run"]
    elsewhere = structs.replace(run, environment={"cores": 1})
    assert tables(elsewhere, "Environment")[0].columns == ["", "this run", "a", "b", "c", "d"]


def test_times_count_from_the_measured_phase(run):
    clock = over_time.clock_of(run)
    assert clock.origin_s == samples.CONNECTING_S
    assert clock.points([(samples.CONNECTING_S + 1.5, 3.0)]) == [(1.5, 3.0)]
    assert over_time.clock_of(structs.replace(run, measured_from_s=11.4)).origin_s == 11.4
    never = over_time.clock_of(samples.result())
    assert (never.origin_s, never.since, never.measured_s) == (0.0, "the run began", None)


def test_merged_points_have_the_peak_or_the_mean():
    points = [(float(at), 1.0 + (at == 7)) for at in range(10)] + [(9.5, None)]
    assert over_time.gather(points, 0.0, 10.0, 2, "highest") == [(0.0, 1.0), (5.0, 2.0)]
    assert over_time.gather(points, 0.0, 10.0, 2, "mean") == [(0.0, 1.0), (5.0, 1.2)]
    assert over_time.gather([(0.0, 1.0), (3.9, 2.0)], 0.0, 4.0, 4, "mean")[1:3] == [(1.0, None), (2.0, None)]


def test_a_report_of_five_hours_stays_small(run):
    seconds = 5 * 3600
    noise = [
        second(at, at + 1, max_us=1000.0 + at * 7919 % 5003, max_send_lag_us=1.0 + at % 97)
        for at in range(seconds)
    ]
    looks = [structs.replace(run.timeline[-1], t_s=float(at), phase="measuring") for at in range(seconds)]
    hosts = [
        structs.replace(host, samples=[samples._host_sample(at, number) for at in range(seconds)])
        for number, host in enumerate(run.hosts)
    ]
    counts = [[(column * 31 + row * 17) % 97 for row in range(64)] for column in range(240)]
    dense = Heatmap(
        starts_s=[75.0 * column for column in range(240)],
        end_s=float(seconds),
        edges_us=[10.0 ** (1 + row / 8) for row in range(64)],
        counts=counts,
    )
    page = as_page(
        structs.replace(run, intervals=noise, timeline=looks, hosts=hosts, heatmap=dense, duration_s=seconds)
    )
    assert figures(page) == FIGURES[:-1]
    assert len(page) < 3_000_000
    assert "hours since the measured phase began" in page
    assert "Each point is the highest of 30 seconds" in page


def test_a_run_without_measurements_shows_its_other_data(run):
    failed = samples.collected(
        [], error="host b (192.0.2.2): lost", requestors=[], providers=[], counters=None
    )
    result = structs.replace(build_result(failed)[0], hosts=run.hosts, timeline=run.timeline[:5])
    page = as_page(result)
    assert figures(page)[0] == "host-cpu"
    assert "seconds since the run began" in page
    text = Page(page).text
    assert "The run failed: host b (192.0.2.2): lost" in text
    assert "Nothing was measured" in text
    assert "No machine was sampled" in as_page(build_result(failed)[0])


def test_a_comparison_of_transports_has_its_chart_and_no_dead_links():
    result = test_transports.comparison()
    page = as_page(result)
    assert figures(page) == ["transport-time"]
    table = transports.draw_times(result.transports, "2014").table
    assert table.columns == ["transport", "one caller", "64 callers", "published 2014"]
    assert table.rows[0] == ["REST, a connection for each call", "500.0", "250.0", "1,492.2"]
    assert transports.draw_times([], "2014") is None
    assert "conservation" in page.partition("<main>")[0]
    parsed = Page(page)
    ids = {attributes.get("id") for _, attributes in parsed.tags}
    assert {attributes["href"][1:] for tag, attributes in parsed.tags if tag == "a"} <= ids


LINEAR = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1."""


def light(colour: str) -> list[float]:
    """Red, green and blue, linear."""
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(rgb: list[float]) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    low, high = sorted(luminance(light(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: list[float]) -> tuple[float, ...]:
    red, green, blue = (min(1.0, max(0.0, part)) for part in rgb)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        luminance([red, green, blue]),
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", range(3), ids=["light", "dark", "print"])
def test_colours_have_contrast_and_differ_for_colour_blind_readers(plain, theme):
    blocks = re.findall(r":root \{([^}]*)\}", plain)
    assert len(blocks) == 3
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[theme]))
    series = [colours[f"series-{number + 1}"] for number in range(SERIES)]
    assert all(contrast(colour, colours["paper"]) >= 3 for colour in series)
    assert all(contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "soft", "good", "bad"))
    for matrix in LINEAR.values():
        seen = [
            lab([sum(a * b for a, b in zip(row, light(colour), strict=True)) for row in matrix])
            for colour in series
        ]
        assert min(math.dist(one, other) for one, other in itertools.combinations(seen, 2)) > 12
    heat = [contrast(colours[f"heat-{number + 1}"], colours["paper"]) for number in range(HEAT_LEVELS)]
    assert heat == sorted(heat)
    assert heat[0] > 2


def test_lines_differ_in_more_than_colour():
    assert len({(style.colour, style.dashes) for style in map(line_style, range(24))}) == 24
    assert len({line_style(number).dashes for number in range(4)}) == 4
