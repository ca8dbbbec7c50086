"""Command `subjectbus config schema`: the JSON Schema of the broker's configuration file, for editors."""

from typing import Any

import click
import msgspec

from subjectbus import settings
from subjectbus.config import BrokerConfig
from subjectbus.printable import echo
from subjectbus.server import default_config


def broker_schema() -> dict[str, Any]:
    """Return the JSON Schema of the TOML file that `subjectbus serve --config` reads.

    Keys, types, ranges and descriptions come from BrokerConfig, defaults from the broker.
    """
    schema = msgspec.json.schema(BrokerConfig)
    _add_defaults(schema, schema["$defs"]["BrokerConfig"], default_config())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of subjectbus",
        **schema,
    }


def _add_defaults(schema: dict[str, Any], table: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Add the broker's default to each key of a table and of the tables in it."""
    for name, key in table["properties"].items():
        if "$ref" in key:
            nested = schema["$defs"][key["$ref"].rpartition("/")[2]]
            _add_defaults(schema, nested, defaults[name])
        else:
            key["default"] = defaults[name]


@click.group(short_help="Describe the broker's configuration file.")
def config() -> None:
    """Describe the TOML file that `subjectbus serve --config` reads."""


@config.command("schema", short_help="Print the JSON Schema of the file.")
def print_schema() -> None:
    """Print the JSON Schema of the configuration file, with which editors complete and check keys."""
    echo(settings.format_schema(broker_schema()))
