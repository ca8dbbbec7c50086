"""The faults of `make mutants` can still be applied to the sources."""

import pytest
from mutants import CORE, CRATES, MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_occurs_once(mutant: Mutant) -> None:
    assert (CORE / CRATES / mutant.file).read_text().count(mutant.old) == 1
