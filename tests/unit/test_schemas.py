"""The JSON Schemas that editors use accept what the programs accept, and describe every key."""

import json
import tomllib
from importlib.resources import files

import jsonschema
import pytest

from loadtest.scenario.load import load_scenario, shipped_scenarios
from subjectbus import BrokerConfig, cli
from subjectbus.config import load_config
from subjectbus.errors import ConfigError
from subjectbus.server import default_config

COMMANDS = {
    "broker": ["config", "schema"],
    "scenario": ["loadtest", "schema", "scenario"],
    "hosts": ["loadtest", "schema", "hosts"],
}
HOST = {"name": "a", "address": "192.0.2.1", "roles": ["broker"]}
WRONG = [
    ("broker", {"shards": "many"}),
    ("broker", {"shardz": 2}),
    ("broker", {"limits": {"connects_per_s": -1}}),
    ("scenario", {"users": 0}),
    ("scenario", {"users": 1, "transport": "udp"}),
    ("scenario", {"users": 1, "subjects": 1}),
    ("scenario", {"workload": "broadcast", "users": 1, "sweep": True}),
    ("scenario", {"users": 1, "profile": {"kind": "ramp", "from": 1}}),
    ("scenario", {"users": 1, "broker": {"shardz": 2}}),
    ("hosts", {"hosts": []}),
    ("hosts", {"hosts": [{"name": "a", "address": "192.0.2.1"}]}),
    ("hosts", {"hosts": [HOST | {"threads": 0}]}),
    ("hosts", {"defaults": {"name": "a"}, "hosts": [HOST]}),
]


@pytest.fixture(params=list(COMMANDS))
def name(request):
    return request.param


@pytest.fixture
def schemas(capsys):
    """What the commands print, by the kind of file."""
    found = {}
    for name, command in COMMANDS.items():
        assert cli.main(command) == 0
        found[name] = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator.check_schema(found[name])
    return found


def check(schema, document):
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_every_shipped_scenario_is_valid(schemas):
    for entry in (files("loadtest") / "scenarios").iterdir():
        check(schemas["scenario"], tomllib.loads(entry.read_text()))


def test_the_defaults_of_the_broker_are_valid(schemas):
    check(schemas["broker"], default_config())
    defaults = schemas["broker"]["$defs"]["BrokerConfig"]["properties"]
    assert defaults["max_payload"]["default"] == default_config()["max_payload"]
    assert schemas["broker"]["$defs"]["LimitsConfig"]["properties"]["connects_per_s"]["default"] == 0


def test_a_hosts_file_is_valid(schemas):
    check(schemas["hosts"], {"defaults": {"user": "bench"}, "hosts": [HOST, HOST | {"threads": 2}]})


@pytest.mark.parametrize(("name", "document"), WRONG)
def test_a_wrong_key_or_value_is_found(schemas, name, document):
    with pytest.raises(jsonschema.ValidationError):
        check(schemas[name], document)


def test_every_key_is_described(schemas, name):
    tables = schemas[name]["$defs"]
    nameless = [
        f"{table}.{key}"
        for table, found in tables.items()
        for key, value in found["properties"].items()
        if not value.get("description") and key != "kind"  # a profile's, which its table describes
    ]
    assert tables
    assert nameless == []


def test_the_schema_and_the_program_agree(schemas, tmp_path):
    """What the schema of the broker refuses, the broker refuses."""
    file = tmp_path / "broker.toml"
    file.write_text("[limits]\nconnects_per_s = -1\n")
    with pytest.raises(ConfigError):
        load_config(file, {})
    file.write_text('tcp = "127.0.0.1:0"\n')
    check(schemas["broker"], tomllib.loads(file.read_text()))
    assert load_config(file, {}) == BrokerConfig(tcp="127.0.0.1:0")


def test_the_schema_knows_every_workload(schemas):
    workloads = {
        choice
        for reference in schemas["scenario"]["oneOf"]
        for choice in schemas["scenario"]["$defs"][reference["$ref"].rpartition("/")[2]]["properties"][
            "workload"
        ]["enum"]
    }
    assert workloads >= {load_scenario(shipped).workload for shipped in shipped_scenarios()}
