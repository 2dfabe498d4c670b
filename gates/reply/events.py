"""The events of a reply: an engine's reply, independent of the wire format. Values only.

One reply is a sequence of these values per choice: any mix of `Thought`, `Text`, `CallStart` and `CallArguments`, then one `Finish`. `Usage`
stands beside the order (an engine may repeat it on every chunk), and `Broken` or `Done` ends the stream.
"""

from typing import Any

from msgspec import Struct


class Text(Struct, frozen=True, gc=False):
    """Visible text: what the caller reads or speaks."""

    choice: int
    text: str


class Alternative(Struct, frozen=True):
    """A token that could have stood there. `bytes`: its UTF-8, of which it may be a part only."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(Struct, frozen=True):
    """A token, its log-probability, and the likeliest ones in its place. `bytes` as in `Alternative`."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[Alternative] = []


class Logprobs(Struct, frozen=True):
    """The tokens of the text that comes next, where they are asked for. None: something was removed, and those before count no more."""

    choice: int
    tokens: list[TokenLogprob]


class Thought(Struct, frozen=True, gc=False):
    """Reasoning text. `kind` labels manners_thinking_stripped_total: `field` (the engine sent it apart), `tag` (between think tags), `orphan` (before
    a closing tag that nothing had opened; the text may be empty, when it had gone out).
    """

    choice: int
    text: str
    kind: str = "field"


class CallStart(Struct, frozen=True, gc=False):
    """The head of one tool call. `index` counts within the choice; `id` may still be missing."""

    choice: int
    index: int
    name: str
    id: str | None = None
    source: str = "engine"  # engine | rescued | invalid | unasked: the label of manners_tool_calls_total


class CallArguments(Struct, frozen=True, gc=False):
    """A fragment of a call's JSON arguments; the fragments of one index concatenate to the whole."""

    choice: int
    index: int
    fragment: str


class Finish(Struct, frozen=True, gc=False):
    """The choice is over: stop, length, tool_calls, content_filter, … `stop`: the caller's stop sequence that ended it, if vLLM says so."""

    choice: int
    reason: str
    stop: str | None = None


class Usage(Struct, frozen=True):
    """Token counts as the engine sent them; `counts` is the JSON object unchanged."""

    counts: dict[str, Any]

    def tokens(self, name: str) -> int:
        """The count called `name` (`prompt_tokens`, `completion_tokens`), or 0."""
        value = self.counts.get(name)
        return value if isinstance(value, int) else 0


class Broken(Struct, frozen=True):
    """The engine reported an error, or broke the protocol, after its stream had begun. `status`: the error's HTTP status, or 0. `by_engine`: message
    and code are the engine's own; otherwise they are ours, and safe to show.
    """

    message: str
    code: str
    status: int = 0
    by_engine: bool = False


class Done(Struct, frozen=True, gc=False):
    """The engine's `[DONE]`."""


Event = Text | Logprobs | Thought | CallStart | CallArguments | Finish | Usage | Broken | Done
"""Everything a stage may be fed or give back."""
