"""`manners quantize compare`: the table's numbers are those of the models' own logits, and what cannot be read is one line."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.data.conversation import read  # noqa: E402
from quantizer.data.render import open_renderer  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import quantize  # noqa: E402
from quantizer.ptq.parity import reference_model  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.reference.measure import expected  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations.write(tmp_path_factory.mktemp("data") / "rows.jsonl", 4)


def read_alone(model: Any, source: Path, data: Path) -> tuple[Any, Any]:
    """Log-probabilities before each token of the assistant's, by transformers' own forward pass, and those tokens."""
    found, written = [], []
    for row in read(data):
        for sample in open_renderer(source).samples(row):
            ids, places = torch.from_numpy(sample.ids).long(), sample.learned.nonzero()[0]
            with torch.no_grad():
                found.append(model(ids[None]).logits[0, places - 1].float().log_softmax(-1))
            written.append(ids[places])
    return torch.cat(found), torch.cat(written)


@pytest.mark.parametrize(
    "kind, more",
    [("granite", {"logits_scaling": 8.0}), ("gemma2", {"final_logit_softcapping": 0.5})],
)
def test_the_figures_are_those_of_the_models_own_logits(
    kind: str, more: dict[str, Any], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, out = tmp_path / "b", tmp_path / "t.json"
    source = folders.save(partial(tiny.decoder, kind, **more), tmp_path / "a")
    quantize.run(load_recipe("default"), source, data, made, now=folders.NOW, device="cpu", proof="none")

    given = ["--data", str(data), "--device", "cpu", "--out", str(out)]
    assert main(["quantize", "compare", str(source), str(made), *given]) == 0

    table, told = json.loads(out.read_text()), capsys.readouterr().out
    before, written = read_alone(load_model(open_source(source)).float(), source, data)
    now, _ = read_alone(reference_model(made).float(), source, data)
    right, old = now.argmax(-1) == written, before.argmax(-1) == written
    wanted = {
        "kl": (before.exp() * (before - now)).sum(-1).mean(),
        "agreement": (now.argmax(-1) == before.argmax(-1)).float().mean(),
        "lost": (old & ~right).float().mean(),
        "gained": (right & ~old).float().mean(),
        "perplexity": (-now.gather(1, written[:, None])).mean().exp(),
    }
    reference, other = table["folders"]
    for name, value in wanted.items():
        found, low, high = other["figures"][name]
        assert found == pytest.approx(float(value), rel=1e-3, abs=1e-6) and low <= found <= high
    assert reference["figures"]["kl"] == [0, 0, 0] and abs(table["control"]["figures"]["kl"][0]) < 1e-5
    assert reference["bits_per_weight"] == 16 and 4.5 < other["bits_per_weight"] < 16
    assert [line.split()[1] for line in told.splitlines()[2:4]] == ["BF16", "W4A4"]


CALL = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Pune"}}\n</tool_call>'
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
PUNE = {"calls": [{"name": "get_time", "arguments": {"city": ["Pune"]}}]}


@pytest.mark.parametrize(
    "expect, text, ended, right",
    [
        (PUNE, CALL, True, True), (PUNE, CALL, False, False), (PUNE, CALL.replace("Pune", "Rome"), True, False),
        (PUNE, "It is five.", True, False), (PUNE, "<tool_call>[1]</tool_call>", True, False), ({"calls": []}, CALL, True, False),
        ({"answer": {"any": ["Paris"]}}, "It is Paris.", True, True), ({"answer": {"any": ["Paris"]}}, "It is Rome.", True, False),
        ({"checks": {"max_sentences": 1}}, "One. Two.", True, False),
    ],
)  # fmt: skip
def test_a_reply_is_judged_as_a_gate_judges_what_is_expected(
    expect: dict[str, Any], text: str, ended: bool, right: bool
) -> None:
    assert expected(TOOLS, expect, [{"role": "user", "content": "What is it?"}])(text, ended) is right


def test_replies_are_counted_by_kind(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = data.read_text().splitlines()
    fact = json.loads(rows[0]) | {"id": "fact-1", "expect": {"answer": {"any": ["Pune"]}}}
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows, json.dumps(fact)]))

    given = ["--data", str(tmp_path / "rows.jsonl"), "--replies", "--device", "cpu", "--json"]
    assert main(["quantize", "compare", str(folders.NANO), str(folders.NANO), *given]) == 0

    table = json.loads(capsys.readouterr().out)
    reference, same = table["folders"]
    assert same["outcomes"] == reference["outcomes"] and len(same["outcomes"].pop("fact")) == 1
    said = "".join(same["outcomes"].values())
    assert "1" in said and len(said) + 1 == table["data"]["replies"]
    assert same["figures"]["fact_lost"] == [0, 0, 0]
