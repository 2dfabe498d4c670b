"""Batches: nothing is lost, nothing is too large, and the same seed gives the same run."""

from collections import Counter

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
np = pytest.importorskip("numpy", reason=INSTALL)

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from quantizer.core.batch import IGNORE  # noqa: E402
from quantizer.data.batches import batches, collate, plan  # noqa: E402
from quantizer.data.render import TrainingSample  # noqa: E402

pytestmark = pytest.mark.torch
LENGTHS = st.lists(st.integers(2, 300), min_size=1, max_size=60)


def sample(length: int, learned: int = 1) -> TrainingSample:
    """Ids count up from one; the last ones are learned."""
    return TrainingSample(np.arange(1, length + 1, dtype=np.int32), np.arange(length) >= length - learned)


@given(LENGTHS, st.integers(16, 2000))
def test_every_sample_is_in_one_batch_and_no_batch_is_too_large(lengths: list[int], tokens: int) -> None:
    made = batches(lengths, tokens)

    assert sorted(i for group in made for i in group) == list(range(len(lengths)))
    assert all(len(g) == 1 or max(lengths[i] for i in g) * len(g) <= tokens for g in made)


@given(LENGTHS, st.integers(1, 4), st.integers(1, 3))
def test_an_epoch_has_every_sample_and_a_step_is_a_multiple_of_the_share(
    lengths: list[int], epochs: int, share: int
) -> None:
    steps = plan(lengths, batch_tokens=600, micro_tokens=300, epochs=epochs, seed=3, share=share)
    seen = Counter(i for step in steps for micro in step for i in micro)

    assert all(len(step) % share == 0 for step in steps)
    assert set(seen) == set(range(len(lengths)))
    if share == 1:
        assert set(seen.values()) == {epochs}
        assert all(
            len(step) == 1 or sum(len(m) * max(lengths[i] for i in m) for m in step) <= 600 for step in steps
        )


def test_a_batch_is_padded_at_the_right_and_marks_what_the_assistant_wrote() -> None:
    batch = collate([sample(3), sample(5, learned=2)], [0, 1], pad=99)

    assert batch.ids.tolist() == [[1, 2, 3, 99, 99], [1, 2, 3, 4, 5]]
    assert batch.labels.tolist() == [[IGNORE, IGNORE, 3, IGNORE, IGNORE], [IGNORE] * 3 + [4, 5]]
    assert batch.attention.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
