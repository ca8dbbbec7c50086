import subprocess
import sys
from importlib.metadata import version

import click
import pytest

import subjectbus
from loadtest.cli import loadtest
from subjectbus import cli

ERRORS = [
    (["serve", "--shardz", "2"], "--shardz"),
    (["serve", "--shards", "many"], "shards"),
    (["serve", "--shards"], "--shards"),
    (["serve", "extra"], "extra"),
    (["serve", "--config", "absent.toml"], "absent.toml"),
    (["serve", "--tcp", "nowhere"], "tcp"),
    (["bogus"], "bogus"),
    (["loadtest", "bogus"], "bogus"),
    (["loadtest", "run"], "SCENARIO"),
    (["loadtest", "run", "bogus"], '"bogus"'),
    (["loadtest", "run", "absent.toml"], "absent.toml"),
    (["loadtest", "run", "autocomplete", "--set", "users"], "users"),
    (["loadtest", "run", "autocomplete", "--set", "usres=1"], 'did you mean "users"'),
    (["loadtest", "run", "autocomplete", "--set", "users=0"], "users"),
    (
        ["loadtest", "run", "autocomplete", "--set", "load_driver=epoll", "--set", "users=16000000"],
        "open files",
    ),
    (["loadtest", "run", "autocomplete", "--set", "users=99999999999"], "users"),
    (["loadtest", "run", "autocomplete", "--set", "thresholds=['latency_us.p98 < 1']"], "latency_us.p98"),
    (["loadtest", "run", "autocomplete", "--target", "ftp://x"], "ftp://x"),
    (["loadtest", "run", "autocomplete", "--broker-cpus", "x"], '"x"'),
    (["loadtest", "run", "autocomplete", "--server-pid", "1"], "--server-pid"),
    (
        ["loadtest", "run", "autocomplete", "--target", "nats://127.0.0.1:1", "--broker-cpus", "0"],
        "--broker-cpus",
    ),
    (["loadtest", "report", "absent"], "absent"),
]


@pytest.mark.parametrize(("arguments", "named"), ERRORS, ids=[" ".join(error[0]) for error in ERRORS])
def test_a_user_error_is_one_line_and_exit_status_2(arguments, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("subjectbus: error: ")
    assert said.err.count("\n") == 1
    assert named in said.err
    assert list(tmp_path.iterdir()) == []


def test_an_unexpected_error_is_one_line_too(capsys, monkeypatch):
    def fail(*_arguments, **_options):
        raise KeyError("some\nthing")

    monkeypatch.delenv("SUBJECTBUS_DEBUG", raising=False)
    monkeypatch.setattr(cli.serve, "callback", fail)
    assert cli.main(["serve"]) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError" in said


def test_a_debugger_gets_the_traceback(monkeypatch):
    def fail(*_arguments, **_options):
        raise KeyError

    monkeypatch.setenv("SUBJECTBUS_DEBUG", "1")
    monkeypatch.setattr(cli.serve, "callback", fail)
    with pytest.raises(KeyError):
        cli.main(["serve"])


def test_help_lists_own_and_contributed_commands(capsys):
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "serve" in said
    assert "loadtest" in said
    assert "top " in said


def test_no_command_shows_the_help(capsys):
    assert cli.main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_the_version_equals_the_distributions(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split()[-1] == version("subjectbus") == subjectbus.__version__


@pytest.mark.process
def test_starting_the_command_imports_neither_loadtest_nor_jinja2():
    code = "import sys, subjectbus.cli; print({'loadtest', 'jinja2', 'rich'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


def test_help_of_the_load_test_lists_its_commands_without_importing_them(capsys):
    assert cli.main(["loadtest", "--help"]) == 0
    listed = capsys.readouterr().out
    context = click.Context(loadtest)
    for name in loadtest.list_commands(context):
        command = loadtest.get_command(context, name)
        assert f"  {name:<10} {command.get_short_help_str(limit=200)}\n" in listed


def test_a_command_names_the_extra_that_it_needs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for module in [name for name in sys.modules if name.startswith("loadtest.")]:
        monkeypatch.delitem(sys.modules, module)
    assert cli.main(["loadtest", "run", "autocomplete"]) == 2
    needs = "subjectbus loadtest run needs jinja2: pip install '.[loadtest]' in a checkout of subjectbus"
    assert capsys.readouterr().err == f"subjectbus: error: {needs}\n"


def test_no_error_reaches_the_terminal_unescaped(capsys):
    assert cli.main(["loadtest", "report", "\x1b]0;title\x07\x9b"]) == 2
    assert "\\x1b]0;title\\x07\\x9b" in capsys.readouterr().err
