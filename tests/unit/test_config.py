import json
from pathlib import Path

import click
import msgspec
import pytest

from subjectbus import BrokerConfig, ConfigError, _core, settings
from subjectbus.config import load_config
from subjectbus.serve import serve


def write(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(text)
    return path


def test_only_keys_that_were_set_are_passed_on():
    assert json.loads(load_config(None, {}).to_json()) == {}
    assert json.loads(BrokerConfig(shards=2, echo=False).to_json()) == {"shards": 2, "echo": False}


def test_file_and_flags_are_typed_and_flags_win(tmp_path):
    path = write(tmp_path, 'tcp = "127.0.0.1:1"\nhttp = false\nshards = 4\nping_interval_s = 3\n')
    config = load_config(path, {"shards": "auto", "max_connections": "50", "echo": True, "tcp": ""})
    assert json.loads(config.to_json()) == {
        "tcp": "",
        "http": "",
        "shards": "auto",
        "ping_interval_s": 3.0,
        "max_connections": 50,
        "echo": True,
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("shardz = 2", ': unknown key "shardz" (did you mean "shards"?)'),
        ("qqq = 2", ': unknown key "qqq"'),
        ('shards = "many"', ": shards: invalid enum value 'many' (choose from a number, auto)"),
        ('driver = "kqueue"', ": driver: invalid enum value 'kqueue' (choose from auto, epoll, uring)"),
        ("max_payload = 1.5", ": max_payload: expected int, got float"),
        ('max_payload = "1"', ": max_payload: expected int, got str"),
        ("max_payload = -1", ": max_payload: expected int >= 0"),
        ("ping_interval_s = -1", ": ping_interval_s: expected float >= 0.0"),
        ("tcp = 4222", ": tcp: expected bool | str, got int"),
        ("tcp = ", ": Invalid value (at end of document)"),
        ("\x80", ": "),
        ('cors_origins = "*"', ": cors_origins: expected array, got str"),
        ("[websocket]\norigin = []", ': unknown key "websocket.origin" (did you mean "origins"?)'),
        ("[websocket]\norigins = [1]", ": websocket.origins[0]: expected str, got int"),
        pytest.param("shards = " + "[" * 5000, ": lists or tables are nested too deeply", id="deep"),
        pytest.param("shards = " + "1" * 5000, ": Exceeds the limit", id="digits"),
        ("websocket = 1", ": websocket: expected object, got int"),
    ],
)
def test_an_error_is_one_line_that_names_file_and_key(tmp_path, text, error):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {})
    assert str(raised.value).startswith(f"{path}{error}")
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file or directory"):
        load_config(tmp_path / "absent.toml", {})


def test_a_flag_of_the_wrong_type_is_named():
    with pytest.raises(ConfigError, match="command line: max_payload: expected int, got str"):
        load_config(None, {"max_payload": "big"})


def test_every_key_has_a_described_flag():
    options = {option.name: option for option in serve.params if isinstance(option, click.Option)}
    paths = [path for path, _ in settings.keys(BrokerConfig)]
    assert ("websocket", "origins") in paths
    for path in paths:
        name = "_".join(path)
        assert options[name].opts == ["--" + name.replace("_", "-")]
        assert options[name].help


def test_flags_and_file_may_set_keys_of_the_same_table(tmp_path, monkeypatch):
    path = write(tmp_path, 'allowed_hosts = ["a.example"]\n[websocket]\norigins = ["https://a.example"]\n')
    configs = []

    def refuse(config):
        configs.append(config)
        raise ConfigError

    monkeypatch.setattr("subjectbus.serve.Server", refuse)
    for flags in ([], ["--websocket-origins", "https://b.example", "--websocket-origins", "*"]):
        with pytest.raises(ConfigError):
            serve.main(["--config", str(path), *flags], standalone_mode=False)
    assert [config.websocket.origins for config in configs] == [
        ("https://a.example",),
        ("https://b.example", "*"),
    ]
    assert [config.allowed_hosts for config in configs] == [("a.example",)] * 2


def test_tables_are_merged_key_by_key():
    class Table(msgspec.Struct):
        one: int | msgspec.UnsetType = msgspec.UNSET
        two: int | msgspec.UnsetType = msgspec.UNSET

    class Outer(msgspec.Struct):
        table: Table | msgspec.UnsetType = msgspec.UNSET

    merged = settings.merge(Outer(table=Table(one=1, two=2)), Outer(table=Table(two=3)))
    assert merged == Outer(table=Table(one=1, two=3))
    assert settings.merge(Outer(), Outer(table=Table(one=1))) == Outer(table=Table(one=1))


def test_the_keys_and_types_match_the_brokers():
    defaults = json.loads(_core.default_broker_config())
    assert set(defaults) == set(BrokerConfig.__struct_fields__)
    assert isinstance(msgspec.convert(defaults, BrokerConfig), BrokerConfig)


def test_nested_unknown_keys_carry_their_path():
    class Inner(msgspec.Struct, forbid_unknown_fields=True):
        size: int = 0

    class Outer(msgspec.Struct, forbid_unknown_fields=True):
        inner: Inner | None = None

    with pytest.raises(ConfigError, match=r'x: unknown key "inner\.sise" \(did you mean "size"\?\)'):
        settings.convert(Outer, {"inner": {"sise": 1}}, "x")
