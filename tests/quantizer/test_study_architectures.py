"""The nano models of other architectures, in small: every step gives a result or a refusal by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
pytest.importorskip("transformers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from quantizer.experiments.study.architectures import KINDS, TINY, Nano  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TOKENIZER = Path("models/annie-nano-hf/tokenizer.json")
REFUSED = {
    "llama": set(),
    "gemma3": {"gguf q8_0", "gguf q4_k_m", "gguf nvfp4"},
    "qwen3_moe": {"gguf nvfp4"},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_step_is_done_or_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    saved: list[dict[str, Any]] = []
    Nano(name, tmp_path, TOKENIZER, TINY).run(saved.append)
    record = saved[-1]

    steps = {step: found for step, found in record.items() if isinstance(found, dict) and "seconds" in found}
    assert not [found for found in steps.values() if "error" in found]
    assert {step for step, found in steps.items() if "refused" in found} == REFUSED[name]
    for step in ("default", "gptq", "qad"):
        assert steps[step]["sound"] and steps[step]["parity"]["equal"] == steps[step]["parity"]["tokens"]
