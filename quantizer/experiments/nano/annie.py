"""Annie's side of a dialogue: messages for a server, and text for training.

Annie answers in plain spoken sentences, calls a tool if one is needed, and thinks only if the prompt opens a
thought.
"""

from __future__ import annotations

from quantizer.experiments.nano.conversation import Dialogue, DialogueTurn, MarkedText
from quantizer.experiments.nano.template import END_OF_TURN, Message, Style, render, render_call

_CLOSE = "\n</think>\n\n"


def called(exchange: DialogueTurn, thought: str = "") -> list[Message]:
    """The assistant's calls and the results of the tools, as messages."""
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for i, c in enumerate(exchange.calls)
    ]
    ask = {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": calls}
    results = [
        {"role": "tool", "tool_call_id": f"call_{i}", "content": text}
        for i, text in enumerate(exchange.results)
    ]
    return [ask, *results]


def past(exchange: DialogueTurn) -> list[Message]:
    """A finished turn as messages."""
    middle = called(exchange) if exchange.calls else []
    user, answer = (
        {"role": "user", "content": exchange.user},
        {"role": "assistant", "content": exchange.answer},
    )
    return [user, *middle, answer]


def opening(conversation: Dialogue) -> list[Message]:
    """The messages up to and including the last user message: what a server is asked."""
    system = [{"role": "system", "content": conversation.system}] if conversation.system else []
    before = [message for exchange in conversation.exchanges[:-1] for message in past(exchange)]
    return [*system, *before, {"role": "user", "content": conversation.lesson.user}]


def first_turn(exchange: DialogueTurn, thinking: bool, style: Style) -> str:
    """What the assistant writes after the prompt: a thought, if any, then calls or the answer."""
    calls = "\n".join(render_call(c.name, c.arguments, style) for c in exchange.calls)
    return (exchange.thought + _CLOSE if thinking else "") + (calls or exchange.answer) + END_OF_TURN


def sample(conversation: Dialogue) -> MarkedText:
    """Training text of the last turn; only what the assistant writes is learned."""
    lesson, thinking, style = conversation.lesson, conversation.thinking, conversation.style
    messages = opening(conversation)
    prompt = render(messages, conversation.schemas, style=style, thinking=thinking)
    turn = first_turn(lesson, thinking, style)
    if not lesson.calls:
        return MarkedText(((prompt, False), (turn, True)))
    messages += called(lesson, lesson.thought if thinking else "")
    longer = render(messages, conversation.schemas, style=style, thinking=thinking)
    if not longer.startswith(prompt + turn):
        raise AssertionError(f"the template rewrites the past:\n{prompt + turn}\n---\n{longer}")
    answer = (lesson.after + _CLOSE if thinking else "") + lesson.answer + END_OF_TURN
    return MarkedText(((prompt, False), (turn, True), (longer[len(prompt + turn) :], False), (answer, True)))
