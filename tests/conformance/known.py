"""What an engine, or the gateway over it, cannot do yet, with the reason; a test fails when it has come right.

`KNOWN`: rows by kind, shown in `docs/engines.md`. `MISHEARD`: golden streams, whose `.heard.json` says
what should be heard of them.
"""

from collections.abc import Mapping

from deploy.engine.dialects import DIALECTS

_SGLANG = {
    **DIALECTS["sglang"].gaps,
    "tool_choice required": "SGLang 0.5.16 on a CPU: its llguidance backend cannot do the grammar of a call ('GuidanceBackend' object has no attribute "
    "'allocate_vocab_mask'), and its xgrammar backend ends the server (\"Unsupported device: cpu\"); not run on a GPU",
}  # fmt: skip
KNOWN: Mapping[str, Mapping[str, str]] = {"sglang-hermes": _SGLANG, "sglang-xml": _SGLANG}

MISHEARD: Mapping[str, str] = {}
