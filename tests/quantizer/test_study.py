"""The study's own short ways compute what the long ones compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.experiments.study import decode  # noqa: E402
from quantizer.experiments.study.decode import greedy  # noqa: E402
from quantizer.experiments.study.learn import Loop, distance, said  # noqa: E402
from quantizer.experiments.study.packs import Pack, _pack, packs, shuffled  # noqa: E402
from quantizer.experiments.study.plain import hidden_states  # noqa: E402
from quantizer.layers.linear import hold_weights, nvfp4_layers  # noqa: E402
from quantizer.recipes.recipe import Train  # noqa: E402
from tests.quantizer import tiny  # noqa: E402
from tests.quantizer.learners import (  # noqa: E402
    LSQ,
    PAD,
    PLAIN,
    QAD,
    QAT,
    learner,
    losses,
    samples,
    silent,
    trainer,
)

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
ROWS, WIDTH, STEPS = 4, 64, 6
ORDER = [(0, number % 3) for number in range(STEPS)]


def pack() -> Pack:
    data = samples()
    return _pack([data[i : i + ROWS] for i in range(0, 12, ROWS)], ROWS, WIDTH, PAD, False)


def loop(settings: Train) -> Loop:
    made, teacher = learner(settings), learner(replace(settings, quantized=False, trained="weights"))
    return Loop(
        made,
        [pack()],
        ORDER,
        settings,
        taught=said(teacher, [pack()]) if settings.loss != "ce" else None,
        head=teacher.model.get_parameter("lm_head.weight").detach().clone(),
        hold=hold_weights if settings.quantized else None,
    )


@pytest.mark.parametrize("quantized", [False, True])
def test_the_decoder_written_out_gives_transformers_numbers(quantized: bool) -> None:
    model: Any = learner(replace(QAT, quantized=quantized, precision="bf16")).model
    ids = torch.randint(0, tiny.SIZE["vocab_size"], (3, 20))
    with torch.no_grad():
        theirs = model.model(input_ids=ids, use_cache=False).last_hidden_state
        assert torch.equal(hidden_states(model, ids), theirs)


@pytest.mark.parametrize("settings", [PLAIN, QAT, QAD, LSQ], ids=["sft", "qat", "qad", "lsq"])
def test_a_step_of_few_shapes_is_the_trainers_step(settings: Train) -> None:
    ours, theirs = loop(settings), trainer(settings)
    theirs.steps = [(tuple(range(ROWS * batch, ROWS * (batch + 1))),) for _, batch in ORDER]
    wanted = losses(theirs.run(silent))
    ours.run()
    assert [float(loss) for loss in ours.losses] == pytest.approx(wanted, rel=2e-4, abs=1e-6)


def test_a_weight_moves_though_a_step_is_far_below_half_of_nvfp4s() -> None:
    """The masters are float32 and gradients pass the rounding: many small steps become one of the grid's."""
    made = loop(replace(QAD, precision="bf16", lr=2e-5, warmup=0.0, schedule="constant"))
    layers = nvfp4_layers(made.learner.model)
    made.hold()

    def held() -> dict[str, Any]:
        return {name: layer.held.clone() for name, layer in layers.items() if layer.held is not None}

    before = held()
    made.order = [(0, 0)]
    weights: Any = made.weights
    masters = {name: master.detach().clone() for name, master in weights.masters.items()}
    made.run()
    moved = [
        (weights.masters[f"{name}.weight"] != masters[f"{name}.weight"]).float().mean() for name in layers
    ]
    assert min(moved) > 0.9
    flipped = sum(int(now.ne(before[name]).sum()) for name, now in held().items())
    made.order = [(0, number % 3) for number in range(60)]
    made.run()
    later = sum(int(now.ne(before[name]).sum()) for name, now in held().items())
    assert later > 3 * flipped


def test_replies_are_those_of_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "ROWS", 2)
    model: Any = learner(replace(QAT, precision="bf16")).model.eval().float()
    prompts = [list(range(3, 3 + size)) for size in (9, 14, 5)]
    ours = greedy(model, prompts, pad=PAD, end=-1, most=12)
    for prompt, reply in zip(prompts, ours, strict=True):
        ids = torch.tensor([prompt])
        made: Any = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
            eos_token_id=None, pad_token_id=PAD,
        )  # fmt: skip
        assert reply == made[0, len(prompt) :].tolist()


def test_a_reply_ends_where_the_turn_ends() -> None:
    model = learner(replace(QAT, precision="bf16")).model
    first = greedy(model, [[5, 6, 7]], pad=PAD, end=-1, most=6)[0]
    assert greedy(model, [[5, 6, 7]], pad=PAD, end=first[2], most=6)[0] == first[: first.index(first[2]) + 1]


def test_every_conversation_is_in_one_batch_and_every_learned_token_has_a_place() -> None:
    data = samples(20)
    made = packs(data, 256, PAD, seed=1)
    assert sum(sum(one.counts) for one in made) == sum(int(sample.learned.sum()) for sample in data)
    every = sorted((i, j) for i, one in enumerate(made) for j in range(len(one.counts)))
    assert sorted(shuffled(made, len(every), seed=1)) == every


def test_a_model_is_no_distance_from_itself() -> None:
    made = learner(replace(PLAIN, precision="bf16"))
    head = made.model.get_parameter("lm_head.weight").detach()
    ce, kl = distance(made, [pack()], said(made, [pack()]), head)
    assert kl == pytest.approx(0, abs=1e-6) and 0 < ce < 20
