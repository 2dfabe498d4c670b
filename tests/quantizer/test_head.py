"""The loss of a chunked head: the same numbers and gradients as from whole logits, whatever the chunks."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from torch.nn import functional as F  # noqa: E402

from quantizer.train import head  # noqa: E402
from quantizer.train.head import Goal, Taught, head_loss  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
N, WIDTH, WORDS, COUNT = 11, 8, 23, 17.0
GOALS = [Goal(), Goal(0.0), Goal(0.0, 2.0), Goal(0.3, 1.5)]


def numbers(dtype: Any = torch.float32) -> dict[str, Any]:
    """Hidden states, a head, targets, and a teacher that is near."""
    g = torch.Generator().manual_seed(0)
    made = {
        "hidden": torch.randn(N, WIDTH, generator=g),
        "head": torch.randn(WORDS, WIDTH, generator=g),
        "theirs": torch.randn(N, WIDTH, generator=g),
        "their_head": torch.randn(WORDS, WIDTH, generator=g),
    }
    made = {name: tensor.to(dtype) for name, tensor in made.items()}
    return made | {"targets": torch.randint(0, WORDS, (N,), generator=g)}


def plain(n: dict[str, Any], goal: Goal) -> Any:
    """The same as a textbook has it."""
    logits, theirs = n["hidden"] @ n["head"].T, n["theirs"] @ n["their_head"].T
    ce = F.cross_entropy(logits, n["targets"], reduction="sum")
    t = goal.temperature
    ours, q = F.log_softmax(logits / t, -1), F.log_softmax(theirs / t, -1)
    kl = t * t * F.kl_div(ours, q, log_target=True, reduction="sum")
    return (goal.ce_share * ce + (1 - goal.ce_share) * kl) / COUNT


def gradients(n: dict[str, Any], goal: Goal, of: Any) -> tuple[Any, Any, Any]:
    for name in ("hidden", "head"):
        n[name] = n[name].detach().requires_grad_()
    loss = of(n, goal)
    (3 * loss).backward()  # whatever comes after is passed on
    return loss.detach(), n["hidden"].grad, n["head"].grad


def ours(n: dict[str, Any], goal: Goal) -> Any:
    taught = Taught(n["theirs"], n["their_head"])
    return head_loss(n["hidden"], n["head"], n["targets"], COUNT, goal, taught).total


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("goal", GOALS, ids=str)
def test_chunks_change_nothing(goal: Goal, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK_BYTES", 4 * WORDS * rows)
    found, wanted = gradients(numbers(), goal, ours), gradients(numbers(), goal, plain)

    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
