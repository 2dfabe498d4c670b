"""The faults that `make mutants` makes: each still finds the line that it breaks and the test that notices it, so that a
rename is seen at once."""

import pytest

from tests.mutants import MUTANTS, ROOT, STREAM, TESTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_line_that_a_mutant_breaks_is_there_and_so_is_its_test(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / STREAM / mutant.file).read_text("utf-8")
    file, test = mutant.by.split("::")
    assert f"def {test}(" in (ROOT / TESTS / file).read_text("utf-8")
