"""Every error that subjectbus raises on purpose.

SubjectbusError             exit status 1
├── UsageError              exit status 2: the arguments cannot be used; nothing was started
│   ├── ConfigError         a configuration file, key or value
│   ├── AddressError        a listener that cannot be opened (a port in use, no permission)
│   └── LimitError          the system allows less than what was asked for
├── BrokerError             a running broker failed
└── MonitorError            exit status 3: a broker's monitor listener does not answer as it should

The text of each is one line that says what and where; the command line prints it and nothing else.
"""


class SubjectbusError(Exception):
    """Base of all; `exit_status` is what a command that ends with it returns."""

    exit_status = 1


class UsageError(SubjectbusError):
    """The arguments cannot be used; nothing was started."""

    exit_status = 2


class ConfigError(UsageError):
    """A configuration file, key or value that cannot be used."""


class AddressError(UsageError):
    """A listener that cannot be opened; the text names listener and address."""


class LimitError(UsageError):
    """A limit of the system is below what was asked for; the text has both numbers."""


class BrokerError(SubjectbusError):
    """A running broker failed."""


class MonitorError(SubjectbusError):
    """A broker's monitor listener cannot be reached or does not answer as it should; it names the URL."""

    exit_status = 3
