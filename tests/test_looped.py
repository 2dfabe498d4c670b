"""`looped`: every row runs, every failure names its row, and no row is no test."""

import pytest

from tests.looped import looped


def test_every_row_runs() -> None:
    seen: list[tuple[str, int]] = []

    @looped("size", (1, 2, 3))
    def run(word: str, size: int) -> None:
        seen.append((word, size))

    run(word="a")
    assert seen == [("a", 1), ("a", 2), ("a", 3)]


async def test_several_failures_are_all_shown() -> None:
    @looped("size", (1, 2, 3))
    async def odd(size: int) -> None:
        assert size == 2

    with pytest.raises(ExceptionGroup) as caught:
        await odd()
    assert [error.__notes__ for error in caught.value.exceptions] == [["size = 1"], ["size = 3"]]


def test_the_groups_hold_every_row_once() -> None:
    seen: list[tuple[int, str]] = []

    @looped("row", range(5), in_groups_of=2)
    @looped("word", "ab")
    def run(row: int, word: str) -> None:
        seen.append((row, word))

    (mark,) = vars(run)["pytestmark"]
    assert [(group.values, group.id) for group in mark.args[1]] == [
        (((0, 1),), "row 0"),
        (((2, 3),), "row 2"),
        (((4,),), "row 4"),
    ]
    for group in mark.args[1]:
        run(group=group.values[0])
    assert seen == [(row, word) for row in range(5) for word in "ab"]


def test_no_rows_and_a_name_that_is_no_parameter_are_mistakes() -> None:
    with pytest.raises(AssertionError, match="without having run"):
        looped("size", ())
    with pytest.raises(AssertionError, match="takes no word"):
        looped("word", (1,))(lambda size: None)
