"""Hosts files: their values, and a one-line error for every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.errors import HostsFileError
from loadtest.runner.placement import fit_to_hosts
from loadtest.scenario.inventory import HostPlan, deal_processes, load_inventory
from loadtest.scenario.load import load_scenario

FOUR = """
[defaults]
user = "bench"
key = "{key}"
threads = 2

[[hosts]]
name = "a"
address = "192.0.2.1"
roles = ["broker"]
data_address = "198.51.100.1"
cpus = "0,2-3"

[[hosts]]
name = "b"
address = "192.0.2.2"
port = 2222
roles = ["requestor"]
threads = 4
sources = ["192.0.2.2", "192.0.2.3"]

[[hosts]]
name = "c"
address = "192.0.2.2"
roles = ["requestor", "provider"]
user = "other"
driver = "uring"

[[hosts]]
name = "d"
address = "2001:db8::1"
roles = ["provider"]
"""
ONE = '[[hosts]]\nname = "a"\naddress = "192.0.2.1"\nroles = ["requestor"]\n'


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("a key")
    return path


def write(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def test_keys_of_a_host_override_the_defaults(tmp_path: Path, key: Path) -> None:
    inventory = load_inventory(write(tmp_path, FOUR.format(key=key)))
    a, b, c, d = inventory.hosts
    assert [host.name for host in inventory.hosts] == ["a", "b", "c", "d"]
    assert [host.user for host in inventory.hosts] == ["bench", "bench", "other", "bench"]
    assert [host.port for host in inventory.hosts] == [22, 2222, 22, 22]
    assert [host.threads for host in inventory.hosts] == [2, 4, 2, 2]
    assert {host.key for host in inventory.hosts} == {str(key)}
    assert (a.cpus, a.broker_address, b.broker_address) == ("0,2-3", "198.51.100.1", "192.0.2.2")
    assert b.sources == ("192.0.2.2", "192.0.2.3")
    assert (c.driver, d.driver) == ("uring", None)
    assert inventory.with_role("requestor") == (b, c)
    assert inventory.with_role("provider") == (c, d)


@pytest.mark.parametrize("given", ["key", "./key", "~/key"])
def test_the_path_of_a_key_is_relative_to_the_hosts_file_or_home(
    given: str, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (host,) = load_inventory(write(tmp_path, ONE + f'key = "{given}"\n')).hosts
    assert host.key is not None
    assert Path(host.key) == key


BAD = [
    ("[[hosts]\n", "line 1"),
    ("", "hosts: expected tables [[hosts]]"),
    ("hosts = []", "hosts: expected tables [[hosts]]"),
    ("hosts = 5", "hosts: expected tables [[hosts]]"),
    ("[host]\n", 'unknown key "host" (did you mean "hosts"?)'),
    ("zzz = 1\n" + ONE, 'unknown key "zzz" (known: defaults, hosts)'),
    ("defaults = 1\n" + ONE, "defaults: expected a table"),
    ('[defaults]\nname = "a"\n' + ONE, "defaults: name belongs to each host"),
    ('[defaults]\nusr = "a"\n' + ONE, 'defaults: unknown key "usr" (did you mean "user"?)'),
    ('[defaults]\nport = "22"\n' + ONE, "defaults: port: expected int, got str"),
    (ONE + "port = 0\n", 'hosts[1] "a": port: expected int >= 1'),
    (ONE + "port = 70000\n", 'hosts[1] "a": port: expected int <= 65535'),
    (ONE + "threads = 1.5\n", 'hosts[1] "a": threads: expected int'),
    (ONE + 'threads = "2"\n', 'hosts[1] "a": threads: expected int'),
    (ONE + 'adress = "x"\n', 'hosts[1] "a": unknown key "adress" (did you mean "address"?)'),
    (ONE + "password = 1\n", 'unknown key "password" (known: address, cpus,'),
    (ONE + 'driver = "kqueue"\n', "driver: invalid enum value 'kqueue' (choose from auto, epoll, uring)"),
    (ONE + 'cpus = "0-"\n', "cpus: expected numbers and ranges such as 0,2-3, got '0-'"),
    (ONE + 'cpus = "3-2"\n', "cpus: expected numbers and ranges"),
    (ONE + 'cpus = "0-99999"\n', "cpus: expected numbers and ranges"),
    (ONE + 'sources = ["b"]\n', "sources: expected IP addresses, got 'b'"),
    (ONE + 'data_address = "192.0.2.1:4222"\n', "data_address: expected a host's name or IP address without"),
    (ONE + 'key = "nowhere"\n', 'hosts[1] "a": key: cannot read nowhere: No such file or directory'),
    (ONE + 'key = "."\n', "key: cannot read .: Is a directory"),
    (ONE + 'key = "~nobody-of-this-name/key"\n', "key: ~nobody-of-this-name/key: "),
    (ONE + 'known_hosts = "nowhere"\n', "known_hosts: cannot read nowhere"),
    ('[[hosts]]\nname = "a"\nroles = ["broker"]\n', 'hosts[1] "a": address: missing (its name or IP'),
    ('[[hosts]]\naddress = "h"\nroles = ["broker"]\n', "hosts[1]: name: missing"),
    ('[[hosts]]\nname = "a"\naddress = "h"\n', "roles: missing (any of broker, requestor, provider)"),
    ('[[hosts]]\nname = "a"\naddress = "h"\nroles = []\n', "roles: expected a list"),
    ('[[hosts]]\nname = "a"\naddress = "h"\nroles = "broker"\n', "roles: expected a list"),
    (
        '[[hosts]]\nname = "a"\naddress = "h"\nroles = ["server"]\n',
        "roles: invalid role 'server' (choose from broker, requestor, provider)",
    ),
    ('[[hosts]]\nname = "a"\naddress = "h"\nroles = [["broker"]]\n', "roles: invalid role"),
    ('[[hosts]]\nname = "a"\naddress = "h"\nroles = ["broker", "broker"]\n', "roles: a role is listed twice"),
    ('[[hosts]]\nname = 5\naddress = "h"\nroles = ["broker"]\n', "hosts[1]: name: expected str, got int"),
    ('[[hosts]]\nname = ""\naddress = "h"\nroles = ["broker"]\n', "name: expected 1 to 40 characters"),
    ('[[hosts]]\nname = "a/b"\naddress = "h"\nroles = ["broker"]\n', "name: expected 1 to 40 characters"),
    ('[[hosts]]\nname = "a"\naddress = "me@h"\nroles = ["broker"]\n', 'key of its own, user = "me"'),
    ('[[hosts]]\nname = "a"\naddress = "h:22"\nroles = ["broker"]\n', "key of its own, port = 22"),
    ('[[hosts]]\nname = "a"\naddress = "a b"\nroles = ["broker"]\n', "address: expected a host's name or IP"),
    *(
        (
            f'[[hosts]]\nname = "a"\naddress = "h{char}"\nroles = ["broker"]\n',
            "address: expected a host's name",
        )
        for char in "$;|&`<*"
    ),
    (ONE + ONE.replace("2.1", "2.2"), "hosts[2]: the name a is already used by hosts[1]"),
    (
        ONE + ONE.replace('"a"', '"b"'),
        "hosts[2]: the address and port 192.0.2.1 port 22 is already used by hosts[1]",
    ),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_input_is_one_line_that_names_file_and_key(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(HostsFileError) as caught:
        load_inventory(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hosts_without_a_number_of_processes_share_the_rest(tmp_path: Path) -> None:
    def dealt(*numbers: int | None, wanted: int) -> list[int]:
        tables = [
            ONE.replace('"a"', f'"{index}"').replace("2.1", f"2.{index}")
            + (f"processes = {number}\n" if number is not None else "")
            for index, number in enumerate(numbers)
        ]
        return deal_processes(load_inventory(write(tmp_path, "".join(tables))).hosts, wanted)

    assert dealt(None, None, None, wanted=8) == [3, 3, 2]
    assert dealt(None, None, wanted=1) == [1, 1]
    assert dealt(None, 2, None, wanted=8) == [3, 2, 3]
    assert dealt(None, 9, wanted=8) == [1, 9]
    assert dealt(2, 3, wanted=8) == [2, 3]


def test_a_brokers_address_that_is_not_the_name_of_a_host_is_named() -> None:
    plan = HostPlan(name="a", address="a..b", roles=("broker", "requestor", "provider"))
    with pytest.raises(HostsFileError, match=r'host "a": a\.\.b: not the name of a host; set data_address'):
        fit_to_hosts(load_scenario("autocomplete"), [plan], has_target=False)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match=r"hosts\.toml: No such file"):
        load_inventory(tmp_path / "hosts.toml")


@pytest.mark.parametrize(
    ("roles", "has_target", "needs_providers", "missing"),
    [
        (["requestor"], True, False, None),
        (["broker", "requestor", "provider"], False, True, None),
        (["requestor", "provider"], False, True, "broker"),
        (["broker", "provider"], False, True, "requestor"),
        (["broker", "requestor"], False, True, "provider"),
    ],
)
def test_a_role_that_no_host_has_is_named(
    tmp_path: Path, roles: list[str], has_target: bool, needs_providers: bool, missing: str | None
) -> None:
    path = write(tmp_path, ONE.replace('["requestor"]', str(roles)))
    inventory = load_inventory(path)
    if missing is None:
        inventory.require_roles(has_target=has_target, needs_providers=needs_providers)
        return
    with pytest.raises(HostsFileError) as caught:
        inventory.require_roles(has_target=has_target, needs_providers=needs_providers)
    assert str(caught.value).startswith(f'{path}: no host has the role "{missing}"')
