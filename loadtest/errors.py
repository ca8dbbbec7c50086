"""Every error that loadtest raises on purpose.

SubjectbusError
├── UsageError
│   ├── ConfigError
│   │   ├── ScenarioError    a scenario that does not exist, or a key or value of it
│   │   └── HostsFileError   a hosts file that cannot be read, or a key or value of it
│   ├── TargetError          a target or its monitor that is no usable address
│   └── ThresholdError       a threshold that cannot be parsed, or that no result can answer
└── RunError                 exit status 3: the run itself failed; what was collected is still written
    └── HostError            a host that cannot be reached or used
"""

from subjectbus.errors import ConfigError, SubjectbusError, UsageError


class ScenarioError(ConfigError):
    """A scenario that does not exist, or a key or value of it that cannot be used."""


class HostsFileError(ConfigError):
    """A hosts file that cannot be read, or a key or value of it that cannot be used."""


class TargetError(UsageError):
    """A target that is no usable address, or whose monitor does not answer as one."""


class ThresholdError(UsageError):
    """A threshold that cannot be parsed, or that names no value of a result."""


class RunError(SubjectbusError):
    """The run itself failed: a process died, the target is unreachable, a phase never ended."""

    exit_status = 3


class HostError(RunError):
    """A host cannot be reached or used; the text is "host NAME (ADDRESS): WHAT"."""

    def __init__(self, name: str, address: str, what: str) -> None:
        super().__init__(f"host {name} ({address}): {what}")
        self.name = name
        self.what = what
