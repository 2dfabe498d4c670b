"""Rows that an engine, or the gateway over it, cannot do yet: kind, row, reason.

Each is shown in `docs/engines.md` with its reason, and a test fails when one has come right.
"""

from collections.abc import Mapping

TIME = {"thinking time budget": "The gateway has no time budget for thinking yet."}

NO_BUDGET = (
    "vLLM without a reasoning parser answers 400 to thinking_token_budget. The gateway cannot stop a thought "
    "by itself yet."
)
_BUDGET_ROWS = ("thinking budget 1", "thinking budget 8", "thinking budget 64")

KNOWN: Mapping[str, Mapping[str, str]] = {
    "llama-hermes": TIME,
    "llama-xml": TIME,
    "vllm-hermes": TIME,
    "vllm-xml": TIME,
    "vllm-raw": {**TIME, **dict.fromkeys(_BUDGET_ROWS, NO_BUDGET)},
}
