"""Command `subjectbus serve`, which runs the broker as a process."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click
import msgspec

from subjectbus import limits, settings
from subjectbus.config import BrokerConfig, load_config
from subjectbus.errors import BrokerError
from subjectbus.server import Server, default_config

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_POLL_S = 0.1
_STOP_TIMEOUT_S = 10.0


_PATHS = {"_".join(path): path for path, _ in settings.keys(BrokerConfig)}
"""Path of the configuration key of each option, by the option's name."""


def _config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each configuration key to a command, in the order of the struct."""
    defaults = default_config()
    for path, annotation in reversed(list(settings.keys(BrokerConfig))):
        meta = _meta(annotation)
        name = "_".join(path)
        flag = "--" + name.replace("_", "-")
        default: Any = defaults
        for key in path:
            default = default[key]
        if isinstance(default, bool):
            option = click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=meta.description)
        else:
            metavar = (meta.extra or {}).get("metavar", "VALUE")
            is_list = isinstance(default, list)
            has_default = default not in ("", [])
            help_text = f"{meta.description}  [default: {default}]" if has_default else meta.description
            option = click.option(flag, name, metavar=metavar, help=help_text, multiple=is_list)
        command = option(command)
    return command


def _tables(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, in the keys and tables of a configuration file."""
    document: dict[str, Any] = {}
    for name, value in flags.items():
        if value not in (None, ()):
            *tables, key = _PATHS[name]
            table = document
            for one in tables:
                table = table.setdefault(one, {})
            table[key] = value
    return document


def _meta(annotation: object) -> msgspec.Meta:
    assert get_origin(annotation) is Annotated  # noqa: S101 - true for every key of the struct, and tested
    meta: msgspec.Meta = get_args(annotation)[1]
    return meta


@click.command(short_help="Run the broker.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="TOML file with the configuration, - for standard input; flags override it.",
)
@_config_options
def serve(config_path: Path | None, **flags: str | bool | tuple[str, ...] | None) -> int:
    """Run the broker until SIGTERM or SIGINT.

    The first signal drains the broker: clients are asked to leave, then disconnected. A second signal ends it
    at once.

    Exit status: 0 the broker has drained, 1 it failed, 2 an argument, a key or a listener cannot be used,
    130 or 143 a second SIGINT or SIGTERM ended it at once.
    """
    config = load_config(config_path, _tables(flags))
    limits.raise_descriptor_limit()
    defaults = settings.convert(BrokerConfig, default_config(), "defaults")
    server = Server(settings.merge(defaults, config))
    with _signals_held():
        server.start()
        listeners = " ".join(f"{name}={address}" for name, address in server.addresses().items())
        click.echo(f"ready {listeners}")
        try:
            return _run_until_signalled(server)
        except BrokerError as error:
            return error.exit_status  # the reason is in the log


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block SIGTERM and SIGINT, so that they stay pending; threads that start in the block inherit this."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        # A signal that is still pending must not end the process when it is unblocked.
        while signal.sigpending() & _SIGNALS:
            signal.sigwait(_SIGNALS)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _run_until_signalled(server: Server) -> int:
    """Return the exit status: 0 after a drain, or 128 + the number of the second signal."""
    draining = False
    while not server.wait(_POLL_S):
        # Not sigtimedwait(): it may return no signal after the process was stopped and continued.
        if not signal.sigpending() & _SIGNALS:
            continue
        number = signal.sigwait(_SIGNALS)
        name = signal.Signals(number).name
        if draining:
            server.stop(name)
            server.wait(_STOP_TIMEOUT_S)
            return 128 + number
        server.drain(name)
        draining = True
    return 0
