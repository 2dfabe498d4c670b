"""What an engine cannot do yet, by kind, with the reason: shown in `docs/engines.md`. A test fails when it has come right."""

from collections.abc import Mapping

from deploy.engine.dialects import DIALECTS

_SGLANG = {
    **DIALECTS["sglang"].gaps,
    "tool_choice required": "SGLang 0.5.16 on a CPU: its llguidance backend cannot do the grammar of a call ('GuidanceBackend' object has no attribute "
    "'allocate_vocab_mask'), and its xgrammar backend ends the server (\"Unsupported device: cpu\"); not run on a GPU",
}  # fmt: skip
KNOWN: Mapping[str, Mapping[str, str]] = {"sglang-hermes": _SGLANG, "sglang-xml": _SGLANG}
