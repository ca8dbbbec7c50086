"""Errors that loadtest raises on purpose.

SubjectbusError
├── UsageError
│   ├── ArgumentError        an argument of a function, or the option of the command that mirrors it
│   ├── ConfigError
│   │   ├── ScenarioError    a scenario that does not exist, or a key or value of it
│   │   ├── HostsFileError   a hosts file that cannot be read, or a key or value of it
│   │   └── ResultError      a result folder or one of its files that cannot be used
│   ├── TargetError          a target or its monitor whose address cannot be used
│   └── ThresholdError       a threshold that cannot be parsed, or whose path is not in a result
└── RunError                 exit status 3: the run itself failed; its partial results are still written
    └── HostError            a host that cannot be reached or used

The text of each is one line that says where and what is wrong; the command line prints it and nothing else.
"""

from typing import Any

from subjectbus.errors import ConfigError, SubjectbusError, UsageError


class ArgumentError(UsageError):
    """An argument that cannot be used; the text is "NAME: WHY", and a command puts its option for NAME."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class ScenarioError(ConfigError):
    """A scenario that does not exist, or a scenario with an unusable key or value."""


class HostsFileError(ConfigError):
    """A hosts file that cannot be read, or a hosts file with an unusable key or value."""


class ResultError(ConfigError):
    """A result folder, or a result or experiment file in it, that is missing, broken or not writable."""


class TargetError(UsageError):
    """A target whose address cannot be used, or whose monitor does not answer like a NATS server's."""


class ThresholdError(UsageError):
    """A threshold that cannot be parsed, or whose path does not lead to a value of a result."""


class RunError(SubjectbusError):
    """A run that failed: a process died, the target is unreachable, or a phase did not end."""

    exit_status = 3

    def __init__(self, text: str, result: Any = None) -> None:  # noqa: ANN401 - of any kind of run
        super().__init__(text)
        self.result = result
        """Partial result of the run: a Result, Repeated or Capacity; None if there is none."""


class HostError(RunError):
    """A host that cannot be reached or used; the text is "host NAME (ADDRESS): PROBLEM"."""

    def __init__(self, name: str, address: str, problem: str) -> None:
        """Make the text from the host's name, its address and the problem."""
        super().__init__(f"host {name} ({address}): {problem}")
        self.name = name
        self.problem = problem
