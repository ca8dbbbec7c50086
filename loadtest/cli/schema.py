"""`subjectbus loadtest schema`: JSON Schemas of the files that users write, for editors."""

import click

from loadtest.scenario.schemas import hosts_schema, scenario_schema
from subjectbus import settings
from subjectbus.printable import echo

_SCHEMAS = {"scenario": scenario_schema, "hosts": hosts_schema}


@click.command()
@click.argument("file", type=click.Choice(list(_SCHEMAS)))
def schema(file: str) -> None:
    """Print the JSON Schema of a scenario file or a hosts file.

    An editor completes and checks keys with it.
    """
    echo(settings.format_schema(_SCHEMAS[file]()))
