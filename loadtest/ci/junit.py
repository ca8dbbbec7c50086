"""Test cases as JUnit XML, in the form that Jenkins, GitLab and the actions of GitHub read.

The document is valid against both schemas in use: that of Ant's JUnit task, which is the stricter one, and
that of Jenkins's xUnit plug-in.
"""

import platform
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from loadtest.ci.cases import Case, Suite
from subjectbus.printable import printable

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
_PACKAGE = "subjectbus.loadtest"


def to_junit(suite: Suite) -> str:
    """Return the suite as a document, in which characters that XML forbids are escaped."""
    root = ET.Element("testsuites")
    errors = sum(case.is_error for case in suite.cases)
    element = ET.SubElement(
        root,
        "testsuite",
        name=_text(suite.name) or "-",
        package=_PACKAGE,
        id="0",
        timestamp=_timestamp(suite.started),
        hostname=_text(platform.node()) or "localhost",
        tests=str(len(suite.cases)),
        failures=str(len(suite.failed) - errors),
        errors=str(errors),
        time=f"{suite.duration_s:.3f}",
    )
    values = ET.SubElement(element, "properties")
    # One of the schemas has no place for the value of a test case that holds.
    for case in suite.cases:
        if case.holds and case.text:
            name = _text(f"{case.group}: {case.name}")
            ET.SubElement(values, "property", name=name, value=_text(case.text))
    for case in suite.cases:
        _add(element, suite, case)
    ET.SubElement(element, "system-out")
    ET.SubElement(element, "system-err")
    ET.indent(root)
    return f"{_DECLARATION}\n{ET.tostring(root, encoding='unicode')}\n"


def _add(element: ET.Element, suite: Suite, case: Case) -> None:
    # The duration is reported for the run, which is one of the cases.
    time = f"{suite.duration_s:.3f}" if case.group == "run" else "0.000"
    classname = f"{_PACKAGE}.{_text(suite.name)}.{case.group}"
    test = ET.SubElement(element, "testcase", name=_text(case.name), classname=classname, time=time)
    if case.holds:
        return
    text = _text(case.text)
    failure = ET.SubElement(test, "error" if case.is_error else "failure", message=text, type=case.group)
    failure.text = f"{_text(case.name)}: {text}"


def _text(text: str) -> str:
    """Return the text without characters that XML 1.0 forbids."""
    return printable(text)


def _timestamp(started: str | None) -> str:
    """Return the time in UTC, without a zone, as the stricter schema wants it."""
    at = datetime.now(UTC) if started is None else datetime.fromisoformat(started).astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}"
