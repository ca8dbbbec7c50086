"""Errors that subjectbus raises on purpose.

SubjectbusError             exit status 1
├── UsageError              exit status 2: the arguments cannot be used; nothing was started
│   ├── ConfigError         a configuration file, key or value
│   ├── AddressError        a listener that cannot be opened (a port in use, no permission)
│   └── LimitError          a limit of the system that is too low
├── BrokerError             a running broker failed
└── MonitorError            exit status 3: a broker's monitor listener does not answer as it should

The text of each is one line that says where and what is wrong; the command line prints it and nothing else.
"""


class SubjectbusError(Exception):
    """Base of all errors; `exit_status` is the exit status of a command that ends with the error."""

    exit_status = 1


class UsageError(SubjectbusError):
    """An argument that cannot be used; nothing was started."""

    exit_status = 2


class ConfigError(UsageError):
    """A configuration file, key or value that cannot be used."""


class AddressError(UsageError):
    """A listener that cannot be opened; the text names the listener and its address."""


class LimitError(UsageError):
    """A limit of the system that is too low; the text has the limit and the number that is needed."""


class BrokerError(SubjectbusError):
    """A failure of a running broker."""


class MonitorError(SubjectbusError):
    """A monitor that cannot be reached or does not answer like a broker's; the text names the URL."""

    exit_status = 3
