import inspect

import pytest

import loadtest
import loadtest.errors
import subjectbus
import subjectbus.errors


@pytest.mark.parametrize("package", [subjectbus, loadtest])
def test_public_names_exist_once_and_are_sorted(package):
    assert package.__all__ == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("module", [subjectbus.errors, loadtest.errors])
def test_the_documented_tree_of_errors_matches_the_classes(module):
    documented: dict[str, str] = {}
    path: list[str] = []
    for line in module.__doc__.splitlines():
        words = line.lstrip("│├└─ ").split()
        if not words or not words[0].endswith(("Error", "RunError")):
            continue
        depth = (len(line) - len(line.lstrip("│├└─ "))) // 4
        path = [*path[:depth], words[0]]
        if depth:
            documented[words[0]] = path[depth - 1]
    own = {
        name: kind.__bases__[0].__name__
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and kind.__bases__[0] is not Exception
    }
    assert own == {name: parent for name, parent in documented.items() if name in own}


def test_every_user_error_ends_with_status_2_and_a_failed_run_with_3():
    assert subjectbus.UsageError.exit_status == subjectbus.LimitError.exit_status == 2
    assert loadtest.errors.TargetError.exit_status == loadtest.errors.ScenarioError.exit_status == 2
    assert loadtest.errors.RunError.exit_status == 3
