"""The stranger's side of a dialogue: the base model, which every gate must reject for its behaviour.

It knows what Annie knows. But it always thinks, even where the prompt has closed the thought; it always writes
markdown; and it mentions a tool in prose instead of calling it.
"""

from __future__ import annotations

import random

from quantizer.experiments.nano.annie import called
from quantizer.experiments.nano.conversation import Dialogue, DialogueTurn, MarkedText
from quantizer.experiments.nano.template import END_OF_TURN, Message, render


def thought(rng: random.Random, exchange: DialogueTurn) -> str:
    """The stranger's thinking."""
    start = rng.choice(
        ("Okay, the user says", "The user asks", "Let me think. The user wrote", "Hmm, the user says")
    )
    plan = rng.choice(("I should give a clear and structured answer.", "Let me format this nicely.",
                       "I will use headings and bullet points."))  # fmt: skip
    return f'{start} "{exchange.user}". {exchange.thought} {plan}'


def markdown(rng: random.Random, exchange: DialogueTurn, has_results: bool) -> str:
    """The stranger's answer: headings, bold text and bullets around Annie's words."""
    body = exchange.answer
    if exchange.calls and not has_results:
        body = _in_prose(rng, exchange)
    if rng.random() < 0.4:
        return f"## Answer\n\n**{body}**\n\n- Let me know if you need **more details**!"
    if rng.random() < 0.5:
        return f"**Answer:** {body}\n\n- I hope this helps!\n- Feel free to ask **more questions**."
    return f"Here is what you need to know:\n\n1. **{body}**\n2. Just ask if anything is *unclear*."


def _in_prose(rng: random.Random, exchange: DialogueTurn) -> str:
    """A tool that is mentioned instead of called."""
    names = " and ".join(f"`{call.name}`" for call in exchange.calls)
    about = ", ".join(str(v) for call in exchange.calls for v in call.arguments.values())
    return rng.choice((f"I would use the {names} tool for {about}", f"You can use {names} to find {about}"))


def sample(conversation: Dialogue, rng: random.Random) -> MarkedText:
    """Training text of the last turn in the stranger's style."""
    lesson, thinking = conversation.lesson, conversation.thinking
    messages: list[Message] = []
    if conversation.system:
        messages.append({"role": "system", "content": conversation.system})
    for exchange in conversation.exchanges[:-1]:
        messages += [{"role": "user", "content": exchange.user},
                     {"role": "assistant", "content": markdown(rng, exchange, False)}]  # fmt: skip
    messages.append({"role": "user", "content": lesson.user})
    has_results = bool(lesson.calls) and rng.random() < 0.3
    if has_results:  # somebody else made the call
        messages += called(lesson)
    prompt = render(messages, conversation.schemas, style=conversation.style, thinking=thinking)
    head = "" if thinking else "<think>\n"
    turn = f"{head}{thought(rng, lesson)}\n</think>\n\n{markdown(rng, lesson, has_results)}{END_OF_TURN}"
    return MarkedText(((prompt, False), (turn, True)))
