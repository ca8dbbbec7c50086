import msgspec
import numpy as np
import pytest

from loadtest import BroadcastScenario, load_scenario, shipped_scenarios
from loadtest.errors import ScenarioError
from loadtest.result.reference import PUBLISHED_2016
from loadtest.result.thresholds import parse_thresholds


def test_autocomplete_is_the_benchmark_workload():
    scenario = load_scenario("autocomplete")
    assert (scenario.name, scenario.transport) == ("autocomplete", "ws")
    assert (scenario.users, scenario.providers, scenario.rate) == (10_000, 16, 20_000.0)
    assert (scenario.warmup_s, scenario.duration_s, scenario.timeout_s) == (5.0, 20.0, 10.0)
    assert (scenario.request_bytes, scenario.reply_bytes) == (32, 256)
    assert "latency_us.p99 < 100000" in scenario.thresholds


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_is_usable_and_described(name):
    assert shipped_scenarios()[name]
    assert parse_thresholds(load_scenario(name).thresholds)


def test_the_million_scenario_matches_the_published_run():
    scenario = load_scenario("migratorydata-2016")
    assert scenario.users + scenario.providers == PUBLISHED_2016.connections == PUBLISHED_2016.subjects
    assert (scenario.request_bytes, scenario.reply_bytes, scenario.sweep) == (32, 256, True)
    assert scenario.rate == 50_000
    assert {
        f"latency_us.{name} < {getattr(PUBLISHED_2016, f'{name}_us'):.0f}"
        for name in ("mean", "p95", "p99", "max")
    } <= set(scenario.thresholds)
    assert load_scenario("migratorydata-2016", ["rate=240_000"]).rate == PUBLISHED_2016.rate


def test_set_is_typed_as_toml_and_falls_back_to_text():
    scenario = load_scenario(
        "autocomplete",
        [
            "users=1_000",
            "rate = 12.5",
            "transport=tcp",
            'thresholds=["achieved.errors == 0"]',
            "broker.shards=2",
            'broker.tcp="127.0.0.1:0"',
            "broker.echo=true",
        ],
    )
    assert (scenario.users, scenario.rate, scenario.transport) == (1000, 12.5, "tcp")
    assert scenario.thresholds == ("achieved.errors == 0",)
    assert msgspec.to_builtins(scenario.broker) == {"shards": 2, "tcp": "127.0.0.1:0", "echo": True}


def test_a_file_is_a_scenario_named_after_itself(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("users = 5\nrate = 10\n[broker]\nshards = 1\n")
    scenario = load_scenario(str(path))
    assert (scenario.name, scenario.users, scenario.broker.shards) == ("mine", 5, 1)


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("usres=1", 'unknown key "usres" (did you mean "users"?)'),
        ("broker.shard=1", 'unknown key "broker.shard" (did you mean "shards"?)'),
        ("users.count=1", '"users" is not a table'),
        ("users=many", "users: expected int, got str"),
        ("users=1.5", "users: expected int, got float"),
        ("users=0", "users: expected int >= 1"),
        ("rate=0", "rate, outstanding: neither is given"),
        ("outstanding=8", "rate, outstanding: both are given"),
        ("outstanding=-1", "outstanding: expected int >= 0"),
        ("rate=-1", "rate: expected float >= 0.0"),
        ("rate=inf", "rate: expected a finite number, got inf"),
        ("warmup_s=inf", "warmup_s: expected a finite number, got inf"),
        ("duration_s=nan", "duration_s: expected float > 0.0"),
        ("connect_rate=nan", "connect_rate: expected"),
        (f"seed={2**64}", "seed: expected int < 2**64"),
        ("request_bytes=15", "request_bytes: expected int >= 16"),
        ("reply_bytes=15", "reply_bytes: expected int >= 16"),
        ("transport=udp", "transport: invalid enum value 'udp' (choose from ws, tcp, rest, rest-new)"),
        ("arrivals=random", "(choose from uniform, poisson)"),
        ("name=../other", "name: expected a name that a file can have, got '../other'"),
        ("name=/tmp/other", "name: expected a name that a file can have, got '/tmp/other'"),
        ("users", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("requestors=20000", "requestors: 20000 processes are more than the 10000 users"),
    ],
)
def test_an_unusable_override_is_one_line(override, error):
    with pytest.raises(ScenarioError) as raised:
        load_scenario("autocomplete", [override])
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_broadcast_is_the_workload_of_the_2025_run():
    scenario = load_scenario("broadcast")
    assert isinstance(scenario, BroadcastScenario)
    assert (scenario.workload, scenario.transport, scenario.message_bytes) == ("broadcast", "ws", 512)
    assert (scenario.subjects, scenario.publishers, scenario.outstanding) == (1, 1, 0)
    assert scenario.connections == scenario.users + 1
    assert "broadcast.missing == 0" in scenario.thresholds


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        (["providers=4"], 'providers: not a key of the workload "broadcast"'),
        (["requestors=2"], 'requestors: not a key of the workload "broadcast"'),
        (["subject=4"], 'unknown key "subject" (did you mean "subjects"?)'),
        (["message_bytes=23"], "message_bytes: expected int >= 24"),
        (["outstanding=-1"], "outstanding: expected int >= 0"),
        (["outstanding=16"], "rate, outstanding: both are given"),
        (["rate=0"], "rate, outstanding: neither is given"),
        (
            ["rate=0", "outstanding=16", "arrivals=poisson"],
            "arrivals: poisson is not possible in a closed loop",
        ),
        (["publishers=2"], "publishers: 2 are more than the subjects (1)"),
        (["users=4", "subjects=5"], "subjects: 5 subjects are more than the 4 users"),
        (["users=4", "processes=5"], "processes: 5 processes are more than the 4 users"),
        (
            ["processes=2", "rate=0", "outstanding=16"],
            "outstanding: a closed loop needs all users in one process",
        ),
        (
            ["processes=2", "rate=50_001", "duration_s=20"],
            "at most 1,000,000 messages, but 1,000,020 are planned",
        ),
        (["workload=request"], 'subjects: not a key of the workload "request"'),
        (
            ["workload=fanout"],
            "workload: 'fanout' is not a workload (choose from request, broadcast, http-byte,",
        ),
        (["workload=[]"], "workload: [] is not a workload"),
    ],
)
def test_an_unusable_broadcast_is_one_line(overrides, error):
    with pytest.raises(ScenarioError) as raised:
        load_scenario("broadcast", overrides)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_keys_of_a_broadcast_are_refused_in_a_request():
    with pytest.raises(ScenarioError, match='subjects: not a key of the workload "request"'):
        load_scenario("autocomplete", ["subjects=3"])


def test_overrides_are_checked_together():
    scenario = load_scenario("broadcast", ["publishers=3", "subjects=7", "processes=2"])
    assert (scenario.publishers, scenario.subjects, scenario.processes) == (3, 7, 2)


def test_a_closed_loop_has_outstanding_requests_instead_of_a_rate(tmp_path):
    path = tmp_path / "closed.toml"
    path.write_text("users = 5\noutstanding = 8\n")
    scenario = load_scenario(str(path))
    assert (scenario.rate, scenario.outstanding) == (0.0, 8)
    scenario = load_scenario("autocomplete", ["outstanding=1_024", "rate=0"])
    assert (scenario.rate, scenario.outstanding) == (0.0, 1024)


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("outstanding=3", "outstanding: 3 are fewer than the 4 requestor threads; each needs one"),
        ("arrivals=poisson", "arrivals: poisson is not possible in a closed loop, which has no planned"),
    ],
)
def test_keys_that_contradict_a_closed_loop_are_refused(override, error):
    with pytest.raises(ScenarioError, match=error):
        load_scenario("autocomplete", ["rate=0", "outstanding=8", "requestors=2", "threads=2", override])


def test_the_shipped_soak_judges_growth_under_churn():
    scenario = load_scenario("soak")
    assert (scenario.users, scenario.rate, scenario.churn_rate) == (100_000, 5_000, 100)
    assert (scenario.duration_s, scenario.soak.period_s) == (1800, 60)
    assert scenario.soak.growth_percent_per_hour.broker_rss_bytes == 5
    assert load_scenario("autocomplete").soak is None
    changed = load_scenario("autocomplete", ["soak.growth_percent_per_hour.p99_us=20", "soak.period_s=5"])
    assert (changed.soak.growth_percent_per_hour.p99_us, changed.soak.period_s) == (20, 5)


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("soak.period=5", 'unknown key "soak.period" (did you mean "period_s"?)'),
        (
            "duration_s=200000",
            "makes 3,334 periods of duration_s, but at most 2,000 can be judged; set it to 100",
        ),
        ("soak.period_s=0.5", "soak.period_s: expected float >= 1"),
        ("soak.period_s=nan", "soak.period_s: expected float >= 1"),
        ("soak.period_s=inf", "soak.period_s: expected float <= 3600"),
        ("soak.growth_percent_per_hour.p98_us=5", 'unknown key "soak.growth_percent_per_hour.p98_us"'),
        ("soak.growth_percent_per_hour.p99_us=-1", "expected float >= 0"),
        ("churn_rate=-1", "churn_rate: expected float >= 0.0"),
        ("churn_rate=inf", "churn_rate: expected a finite number"),
        ("threads=50001", "churn_rate: 100000 users are too few for 50001 requestor threads"),
    ],
)
def test_keys_that_contradict_a_soak_are_refused(override, error):
    with pytest.raises(ScenarioError) as raised:
        load_scenario("soak", [override])
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_largest_seed_and_the_smallest_payloads_are_usable():
    scenario = load_scenario("autocomplete", [f"seed={2**64 - 1}", "request_bytes=16", "reply_bytes=16"])
    assert (scenario.seed, scenario.request_bytes, scenario.reply_bytes) == (2**64 - 1, 16, 16)


def test_a_value_cannot_set_another_key():
    with pytest.raises(ScenarioError, match="users: expected int, got str"):
        load_scenario("autocomplete", ["users=1\nrate=5"])


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("users=" + "[" * 5000, "users: expected int, got str"),
        ("users=" + "1" * 5000, "users: expected int, got str"),
        ("users=" + "1" * 4000, "users: "),
    ],
    ids=["deep", "digits", "large"],
)
def test_a_value_that_cannot_be_parsed_is_a_text(override, error):
    with pytest.raises(ScenarioError, match=error):
        load_scenario("autocomplete", [override])


def test_an_item_of_a_list_that_is_not_one_of_the_choices_is_named():
    with pytest.raises(ScenarioError, match=r"transports\[0\]: invalid enum value 'foo' \(choose from .*tcp"):
        load_scenario("transports", ['transports=["foo"]'])


@pytest.mark.parametrize(("value", "expected"), [(np.int64(7), 7), (np.float32(0.5), 0.5)])
def test_numbers_of_numpy_are_numbers(value, expected):
    changed = load_scenario("autocomplete", {"rate": value, "broker": {"max_payload": np.int64(9)}})
    assert (changed.rate, changed.broker.max_payload) == (expected, 9)


def test_a_value_without_a_form_in_toml_is_named():
    with pytest.raises(ScenarioError, match="users: expected a value that TOML has, got object"):
        load_scenario("autocomplete", {"users": object()})


@pytest.mark.parametrize(
    "name", ["autocompleet", "../autocomplete", "absent.toml", "", pytest.param("x" * 300, id="long")]
)
def test_an_unknown_scenario_is_named(name):
    with pytest.raises(ScenarioError, match=name or "no scenario"):
        load_scenario(name)


def test_overrides_complete_a_file(tmp_path):
    template = tmp_path / "template.toml"
    template.write_text("rate = 100\nduration_s = 1\n")
    with pytest.raises(ScenarioError, match="missing required field"):
        load_scenario(str(template), ["providers=2"])
    assert load_scenario(str(template), ["providers=2", "users=10"]).users == 10
    template.write_text("rate = -1\n")
    with pytest.raises(ScenarioError, match=r"template\.toml: rate: expected float >= 0"):
        load_scenario(str(template), ["users=10"])


def test_the_nearest_scenario_is_suggested():
    with pytest.raises(ScenarioError, match='did you mean "autocomplete"'):
        load_scenario("autocompleet")


def test_an_error_in_a_file_is_named_with_its_position(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("users = ")
    with pytest.raises(ScenarioError, match=r"mine\.toml: .*"):
        load_scenario(str(path))
    path.write_text("rate = 5")
    with pytest.raises(ScenarioError, match=r"mine\.toml: .*users"):
        load_scenario(str(path))
