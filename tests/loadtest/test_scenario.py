import msgspec
import pytest

from loadtest import load_scenario, shipped_scenarios
from loadtest.errors import ScenarioError
from loadtest.thresholds import parse_thresholds


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
        ("users.count=1", '"users" is no table'),
        ("users=many", "users: expected int, got str"),
        ("users=1.5", "users: expected int, got float"),
        ("users=0", "users: expected int >= 1"),
        ("rate=0", "rate: expected float > 0.0"),
        ("rate=-1", "rate: expected float > 0.0"),
        ("rate=inf", "rate: expected a finite number, got inf"),
        ("warmup_s=inf", "warmup_s: expected a finite number, got inf"),
        ("duration_s=nan", "duration_s: expected float > 0.0"),
        ("connect_rate=nan", "connect_rate: expected"),
        (f"seed={2**64}", "seed: expected int < 2**64"),
        ("request_bytes=15", "request_bytes: expected int >= 16"),
        ("reply_bytes=15", "reply_bytes: expected int >= 16"),
        ("transport=udp", "transport: invalid enum value 'udp' (choose from ws, tcp)"),
        ("arrivals=random", "(choose from uniform, poisson)"),
        ("users", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("requestors=20000", "requestors: 20000 processes for 10000 users"),
    ],
)
def test_an_unusable_override_is_one_line(override, error):
    with pytest.raises(ScenarioError) as raised:
        load_scenario("autocomplete", [override])
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_largest_seed_and_the_smallest_payloads_are_usable():
    scenario = load_scenario("autocomplete", [f"seed={2**64 - 1}", "request_bytes=16", "reply_bytes=16"])
    assert (scenario.seed, scenario.request_bytes, scenario.reply_bytes) == (2**64 - 1, 16, 16)


def test_a_value_cannot_smuggle_in_another_key():
    with pytest.raises(ScenarioError, match="users: expected int, got str"):
        load_scenario("autocomplete", ["users=1\nrate=5"])


@pytest.mark.parametrize("name", ["autocompleet", "../autocomplete", "absent.toml", ""])
def test_an_unknown_scenario_is_named(name):
    with pytest.raises(ScenarioError, match=name or "no scenario"):
        load_scenario(name)


def test_the_nearest_scenario_is_suggested():
    with pytest.raises(ScenarioError, match='did you mean "autocomplete"'):
        load_scenario("autocompleet")


def test_a_broken_file_is_named_with_its_place(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("users = ")
    with pytest.raises(ScenarioError, match=r"mine\.toml: .*"):
        load_scenario(str(path))
    path.write_text("rate = 5")
    with pytest.raises(ScenarioError, match=r"mine\.toml: .*users"):
        load_scenario(str(path))
