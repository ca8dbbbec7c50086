"""`subjectbus loadtest scenarios`."""

import click

from loadtest.plan.scenario import shipped_scenarios


@click.command()
def scenarios() -> None:
    """List the shipped scenarios."""
    for name, description in shipped_scenarios().items():
        click.echo(f"{name}  {description}")
