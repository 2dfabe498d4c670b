"""The faults that `make mutants` makes: each still finds the line that it breaks and the test that notices it, so that a
rename is seen at once."""

from tests.looped import looped
from tests.mutants import MUTANTS, ROOT, Mutant


@looped("mutant", MUTANTS)
def test_the_line_that_a_mutant_breaks_is_there_and_so_is_its_test(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.place).read_text("utf-8")
    file, test = mutant.test.split("::")
    assert f"def {test}(" in (ROOT / file).read_text("utf-8")
