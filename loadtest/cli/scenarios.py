"""`subjectbus loadtest scenarios`."""

import click

from loadtest.scenario.load import shipped_scenarios
from subjectbus.printable import echo


@click.command()
def scenarios() -> None:
    """List the shipped scenarios."""
    for name, description in shipped_scenarios().items():
        echo(f"{name}  {description}")
