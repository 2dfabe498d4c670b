"""What an engine supports with its build and flags, found by trying it once after its start. A late answer leaves the default."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deploy.core.engine_http import HTTP_ERRORS
from deploy.engine import vllm
from deploy.engine.dialects import DIALECTS
from deploy.engine.formats import misfit
from deploy.engine.questions import Asker, Found, Question
from deploy.engine.spec import EngineSpec, Medium

ABILITIES_SECONDS = 10.0
"""How long an engine may take to answer all questions; at 25 tokens per second it needs three seconds."""
ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What an engine supports. The defaults are for what could not be tried.

    parses_tools: it accepts tools; otherwise only with `tool_choice: none`.
    budgets: it ends a thought after the number of tokens in the request. None: not tried.
    closing: the token ids that end a thought, for an engine that continues from token ids; () otherwise.
    closer: the id of the single token that ends a thought.
    context: the longest prompt and reply together, in tokens.
    reasoning_field: the field of a message that holds thoughts; None: they are in the text.
    calls: the form of tool calls that the chat template asks for.
    format: how its model writes thoughts and calls (`deploy.engine.formats`); "" if nothing told.
    taught: the format that its chat template teaches, in the same way.
    off_works: it does not think when thinking is off. None: not shown.
    continues: it continues an assistant message at the end of the prompt.
    build: its name and version.
    media: what it takes in a message besides text.
    """

    parses_tools: bool = True
    budgets: bool | None = None
    closing: tuple[int, ...] = ()
    closer: int | None = None
    context: int | None = None
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    calls: Literal["hermes", "xml"] | None = None
    format: str = ""
    taught: str = ""
    off_works: bool | None = None
    continues: bool | None = None
    build: str | None = None
    media: tuple[Medium, ...] = ()

    @property
    def misfit(self) -> str:
        """Why `format` is not what the template teaches, and what to do; "" if nothing is known to be wrong."""
        return misfit(self.format, self.taught)


async def abilities(
    url: str, spec: EngineSpec, *, model: str, deadline_s: float = ABILITIES_SECONDS
) -> Abilities:
    """Find out what the engine at `url` supports; all questions are sent concurrently, each for at most `deadline_s` seconds.

    A question without an answer is asked once more: an engine may compile during its first requests. What the spec states
    is not asked.
    """
    if spec.kind == "embeddings":
        return Abilities()  # they all concern chat
    found: Found = {}
    open_questions: Sequence[Question] = DIALECTS[spec.dialect].questions
    if spec.media is not None:
        open_questions = [ask for ask in open_questions if ask is not vllm.media]
    asker = Asker(url, model, spec.access)
    for _ in range(ROUNDS):
        answers = await asyncio.gather(*(_settle(ask, asker, deadline_s) for ask in open_questions))
        for answer in answers:
            found |= answer or {}
        again = [ask for ask, answer in zip(open_questions, answers, strict=True) if answer is None]
        open_questions = again
    if spec.media is not None:
        found["media"] = spec.media
    found["taught"] = found.get("taught") or await asyncio.to_thread(lambda: spec.taught_format)
    found["format"] = spec.format or found["taught"]
    return replace(Abilities(), **found)


async def _settle(question: Question, asker: Asker, deadline_s: float) -> Found | None:
    """What a question found: {} if the answer was unusable, None if there was no answer."""
    try:
        async with asyncio.timeout(deadline_s):
            return await question(asker)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return {}
    except (*HTTP_ERRORS, TimeoutError):
        return None
