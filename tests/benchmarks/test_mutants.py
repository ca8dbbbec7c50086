"""The faults that `make mutants` puts into a copy of the sources still fit these."""

import pytest
from mutants import CORE, CRATES, MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_a_mutant_is_there_once(mutant: Mutant) -> None:
    assert (CORE / CRATES / mutant.file).read_text().count(mutant.old) == 1
