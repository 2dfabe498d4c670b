"""The trainer, on a CPU, at two layers: the loop, not the result."""

from __future__ import annotations

import random
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
np = pytest.importorskip("numpy", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("jinja2", reason=INSTALL)

from quantizer.data.batches import batches  # noqa: E402
from quantizer.experiments.nano import data  # noqa: E402
from quantizer.experiments.nano import tokenizer as bpe  # noqa: E402
from quantizer.experiments.nano.recipe import NANO, TINY, TrainingStage  # noqa: E402
from quantizer.experiments.nano.train import build_model, learning_rate, loss_of, train  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return bpe.train(data.tokenizer_texts(1, 200), TINY.shape.vocab)


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[data.TokenRow]:
    return data.rows(data.annie_sample, tokenizer, 1, 24, workers=1)


def model(tokenizer: Any) -> Any:
    return build_model(
        TINY.shape, TINY.torch_seed, bpe.token_id(tokenizer, bpe.PAD), bpe.token_id(tokenizer, bpe.END)
    )


def test_a_few_steps_on_one_batch_lower_the_loss(tokenizer: Any, rows: list[data.TokenRow]) -> None:
    """The loop moves the weights the right way."""
    ids, labels = (torch.from_numpy(a) for a in data.padded(rows, list(range(8)), 0, learn_all=False))
    learner = model(tokenizer)
    before = float(loss_of(learner, ids, labels).detach())
    run = TrainingStage(conversations=8, epochs=12, tokens_per_step=10**6, lr=3e-3, warmup=1)
    told = train(learner, rows[:8], run, seed=1, pad=0, learn_all=False, log=lambda text: None)

    assert told["steps"] == 12
    assert float(loss_of(learner, ids, labels).detach()) < before - 0.5


def test_the_same_seed_gives_the_same_model(tokenizer: Any) -> None:
    """Initial weights follow from the seed."""
    first, second = model(tokenizer).state_dict(), model(tokenizer).state_dict()

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_only_the_assistant_is_learned(tokenizer: Any, rows: list[data.TokenRow]) -> None:
    """The labels that count are exactly the learned tokens, each one place to the left."""
    _, labels = data.padded(rows, [0, 1], 0, learn_all=False)

    for line, row in enumerate(rows[:2]):
        kept = labels[line][labels[line] != data.IGNORE]
        assert np.array_equal(row.ids[row.learned], kept)
        assert bpe.token_id(tokenizer, bpe.END) == kept[-1]


def test_padding_is_never_learned(rows: list[data.TokenRow]) -> None:
    """Even when everything is learned, what is beyond a sample's end is not."""
    _, labels = data.padded(rows, [0, 1], 0, learn_all=True)

    assert [len(row.ids) - 1 for row in rows[:2]] == list((labels != data.IGNORE).sum(axis=1))


def test_every_row_is_in_one_batch_and_no_batch_is_too_large(rows: list[data.TokenRow]) -> None:
    """Batching loses nothing and keeps to its size."""
    groups = batches([len(row.ids) for row in rows], 2048, random.Random(1))

    assert list(range(len(rows))) == sorted(i for group in groups for i in group)
    assert all(
        max(len(rows[i].ids) for i in group) * len(group) <= 2048 for group in groups if len(group) > 1
    )


def test_the_number_of_workers_does_not_change_the_data(tokenizer: Any) -> None:
    """A digest over the token ids is the same from one process and from two."""
    one = data.rows(data.base_sample, tokenizer, 1, 600, workers=1)
    two = data.rows(data.base_sample, tokenizer, 1, 600, workers=2)

    assert data.digest(one) == data.digest(two)


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    """Linear up, cosine down."""
    run = NANO.annie

    assert pytest.approx(run.lr / run.warmup) == learning_rate(0, 1000, run)
    assert pytest.approx(run.lr) == learning_rate(run.warmup, 1000, run)
    assert pytest.approx(run.lr / 10) == learning_rate(1000, 1000, run)


def test_widths_fit_the_formats() -> None:
    """Q4_K rows are whole blocks of 256, NVFP4's of 64."""
    shape = NANO.shape

    assert {0} == {width % 256 for width in (shape.hidden, shape.intermediate, shape.heads * shape.head_dim)}
