"""JSON Schemas of the files that users write, for editors and for the reference: scenarios and hosts files.

Keys, types, ranges, defaults and descriptions come from the types that read the files.
"""

from typing import Any

import msgspec

from loadtest.scenario.inventory import HostDefaults, HostPlan
from loadtest.scenario.kinds import WORKLOADS, Scenario

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario file: the key `workload` decides which of four tables it is."""
    _, definitions = msgspec.json.schema_components(list(WORKLOADS.values()), ref_template=_REF)
    for kind in WORKLOADS.values():
        # A file may leave out the workload "request", and no other.
        if kind is not Scenario:
            definitions[kind.__name__]["required"] = ["workload", *definitions[kind.__name__]["required"]]
    return {
        "$schema": _DIALECT,
        "title": "Scenario of a load test",
        "type": "object",
        "oneOf": [{"$ref": _REF.format(name=kind.__name__)} for kind in WORKLOADS.values()],
        "$defs": definitions,
    }


def hosts_schema() -> dict[str, Any]:
    """Return the schema of a hosts file: a table `[defaults]`, and a table `[[hosts]]` for each host."""
    _, definitions = msgspec.json.schema_components([HostDefaults, HostPlan], ref_template=_REF)
    return {
        "$schema": _DIALECT,
        "title": "Hosts of a load test",
        "type": "object",
        "properties": {
            "defaults": {"$ref": _REF.format(name="HostDefaults")},
            "hosts": {"type": "array", "items": {"$ref": _REF.format(name="HostPlan")}, "minItems": 1},
        },
        "required": ["hosts"],
        "additionalProperties": False,
        "$defs": definitions,
    }
