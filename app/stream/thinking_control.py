"""How far an engine is trusted to keep its thoughts apart, and what that costs its callers. Pure.

A closing think tag without its opening tag shows that the text before it was a thought, which may have reached the caller. Only
holding text back prevents that, and it costs time to first content. So the number of held characters follows the evidence:

    verified    a passing gate report put this engine in service, or its start-up probe saw it answer without a thought
    unverified  nothing was shown: an engine that was not asked (dialect `openai`), or gave no clear answer
    violated    it was seen to think although thinking was off, by the start-up probe or by the behaviour probe for which
                a caller's reply asked (`app.engines.behaviour`); until clean probes in a row clear it, or it restarts
"""

from collections.abc import Mapping
from typing import Literal

from deploy.engine.abilities import Abilities

ThinkingControl = Literal["verified", "unverified", "violated"]

PUBLIC: Mapping[ThinkingControl, str] = {"verified": "obeys", "unverified": "unknown", "violated": "caught"}
"""As metrics, HTTP, pages and the log call it."""

HELD: Mapping[ThinkingControl, int] = {"verified": 0, "unverified": 160, "violated": 1024}
"""Characters held at the start of a stream. 160 is two spoken sentences: a lost tag in front of an answer comes with the leftover
of a thought, a sentence or less (llama.cpp #28182). 1,024 is more than a spoken answer."""

Guard = int | Literal["auto"]
"""The configuration's `thought_guard`: characters, or as the evidence says."""


def thinking_control(abilities: Abilities, gated: bool, violated: bool) -> ThinkingControl:
    """The verdict on an engine. `gated`: a passing report let it in; `violated`: a probe saw it think, and none cleared it."""
    if violated:
        return "violated"
    return "verified" if gated or abilities.off_works else "unverified"


def held_characters(guard: Guard, control: ThinkingControl) -> int:
    """How many characters to hold."""
    return HELD[control] if guard == "auto" else guard
