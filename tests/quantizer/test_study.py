"""The study's measures, on the nano: what is asked in a batch is what is asked alone, and a model is no way from itself."""

from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.data.render import open_renderer  # noqa: E402
from quantizer.study import measure  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NANO = Path(__file__).parents[2] / "models" / "annie-nano-hf"


def test_replies_in_a_batch_are_those_alone_and_a_model_is_no_way_from_itself() -> None:
    renderer, model = open_renderer(NANO), load_model(open_source(NANO)).float()
    asked = measure.facts(renderer)[:60:12]
    some = [one._replace(prompt=one.prompt[: 20 + 9 * i]) for i, one in enumerate(asked)]
    said = measure.replies(model, some, renderer)
    assert said == [measure.replies(model, [one], renderer)[0] for one in some]
    reference = measure.refer(model, some, said, [], renderer.pad)
    found = measure.compared(model, reference, renderer.pad)
    assert found["kl"]["fact"] == [0.0, 0.0]
    assert sum(flips for _, flips in found["by_margin"]["fact"]) == 0


CALL = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Pune"}}\n</tool_call>'


@pytest.mark.parametrize(
    "text, ended, right",
    [(CALL, True, (True, True)), (CALL, False, (False, False)),
     (CALL.replace("Pune", "Rome"), True, (True, False)), ("It is five.", True, (False, False))],
)  # fmt: skip
def test_an_exact_call_has_the_name_and_the_arguments(
    text: str, ended: bool, right: tuple[bool, bool]
) -> None:
    found = measure.called([{"name": "get_time", "arguments": {"city": "Pune"}}])(text, ended)
    assert (found["tool"], found["exact"]) == right
