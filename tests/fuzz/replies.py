"""Random replies of engines, and what must be true of each: no secret is heard, on no surface, and no cut changes anything.

`python -m tests.fuzz.replies [--seconds N] [--seed N]` searches; the target `reply` of `tests.fuzz` lets a fuzzer draw them.
A reply is a row of pieces in the forms that chat templates teach; what stands in a thought, and in the arguments of a call,
is a secret. The pieces meet at random, over both fields of the engine. The forms that are not recognised stand in
docs/tool-calls.md; none of them is drawn here.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from app.stream.holdback import UNBOUNDED
from gates.reply.events import Event
from tests.app.stream.wire import Delta, chunk
from tests.fuzz.draw import Draw, at_random
from tests.fuzz.reply_reader import CHATS, COMPLETIONS, collected, events_of, heard_of, policy_of, streamed

THOUGHTS = (
    ("<think>", "</think>"), ("<think>\n", "\n</think>\n\n"), ("<Thinking>", "</Thinking>"), ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"), ("<seed:think>", "</seed:think>"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought\n", "<channel|>"), ("&lt;think&gt;", "&lt;/think&gt;"), ("<thought>", "</thought>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<scratch_pad>", "</scratch_pad>"), ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
)  # fmt: skip
CALLS = (
    '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>',
    "<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>",
    '[TOOL_CALLS][{{"name": "{name}", "arguments": {arguments}}}]',
    "[TOOL_CALLS]{name}[ARGS]{arguments}",
    '<|python_tag|>{{"name": "{name}", "parameters": {arguments}}}',
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
    '<minimax:tool_call>\n<invoke name="{name}">\n<parameter name="{key}">{value}</parameter>\n</invoke>\n</minimax:tool_call>',
    '\n{{"name": "{name}", "arguments": {arguments}}}\n',
    '<|tool_call|>[{{"name": "{name}", "arguments": {arguments}}}]',
    "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>",
    '<|action_start|><|plugin|>\n{{"name": "{name}", "parameters": {arguments}}}<|action_end|>',
    '<|tools_prefix|>[{{"{name}": {arguments}}}]<|tools_suffix|>',
    "<tool_calls>\n<tool_call>{name}<tool_sep>\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>\n</tool_calls>",
    '<function_calls>\n{name}({key}="{value}")\n</function_calls>',
    '<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "{name}", "parameters": {arguments}}}]<|END_ACTION|>',
    "<|tool_call:begin|>c1<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
    '\n{{"tool_calls": [{{"name": "{name}", "arguments": {arguments}}}]}}\n',
    '\nfunctools[{{"name": "{name}", "arguments": {arguments}}}]\n',
    ">>>{name}\n{arguments}\n",
    '\n<function name="{name}"><param name="{key}">{value}</param></function>\n',
)  # fmt: skip
PROSE = (
    "Hi.", " It is four. ", "\n", "\n\n", " **", "- ", "\n1. ", " a < b ", "So [1]: ", "(", ") ", "é🙂 ", "ನಮಸ್ಕಾರ। ", "Yes, "
)  # fmt: skip
WORDS = ("\n{", "\nfunctools", ">>>")
"""Beginnings of calls that have no marker but words: no call of these begins in reasoning and ends in text."""
NAMES = (("web_search", "query"), ("run", "command"), ("get_moon", "day"))
CODE = ("`x`", "`<b>`", "\n```py\nprint(1)\n```\n")


@dataclass(frozen=True)
class Reply:
    """pieces: (field, text) in order. secrets: what must not be heard."""

    pieces: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    finish: str

    def deltas(self, size: int) -> Iterator[Delta]:
        """The reply cut into pieces of so many characters; 0: as it was drawn."""
        for field, text in self.pieces:
            for at in range(0, len(text), size or max(len(text), 1)):
                yield {field: text[at : at + (size or len(text))]}

    def wire(self, size: int) -> bytes:
        parts = [chunk(delta) for delta in self.deltas(size)]
        return b"".join([*parts, chunk({}, self.finish), b"data: [DONE]\n\n"])


def draw_reply(draw: Draw) -> Reply:
    pieces: list[tuple[str, str]] = []
    secrets: list[str] = []
    field = "reasoning_content" if draw.chance(6) else "content"
    for number in range(1 + draw.below(7)):
        kind = draw.below(8)
        secret = f"SECRET{number}Z"
        if kind < 2:
            opening, closing = draw.pick(THOUGHTS)
            inner = draw.pick(
                (secret, f"Hm, {secret}.", f"\n{secret}\n\nSo.\n", f'"{secret}"', f"{secret} `x` {secret}")
            )
            text = f"{opening}{inner}{closing}"
        elif kind < 4:
            name, key = draw.pick(NAMES)
            arguments = json.dumps({key: draw.pick((secret, f"a {secret} {{[", f"</b> {secret}"))})
            text = draw.pick(CALLS).format(name=name, key=key, value=secret, arguments=arguments)
        else:
            secret, text = "", draw.pick(CODE) if draw.chance(5) else draw.pick(PROSE)
        if secret:
            secrets.append(secret)
        if field == "reasoning_content" and draw.chance(2) and "`" not in text:
            at = draw.below(len(text) + 1) if secret and not text.startswith(WORDS) else len(text)
            pieces.append((field, text[:at]))
            field, text = "content", text[at:]
        elif field == "reasoning_content":
            secrets.append(text) if text.startswith("SECRET") else None
        pieces.append((field, text))
    return Reply(
        tuple((name, text) for name, text in pieces if text),
        tuple(secrets),
        draw.pick(("stop", "stop", "length")),
    )


def faults(reply: Reply, draw: Draw) -> Iterator[str]:
    """What is wrong with how a reply is heard."""
    tools, size = draw.chance(2), draw.pick((1, 2, 3, 7))
    reasons = any(field != "content" for field, _ in reply.pieces)  # a legacy completion has no such field
    surface = draw.pick((*CHATS.values(), *(() if reasons else (COMPLETIONS,))))
    has_tools = tools and surface is not COMPLETIONS
    policy = policy_of(
        surface, "vllm", stream=True, tools=has_tools, thinking=False, guard=draw.pick((0, 160))
    )
    whole = events_of([reply.wire(0)], policy)
    if heard_of(events_of([reply.wire(size)], policy)) != heard_of(whole):
        yield f"in pieces of {size} it is heard otherwise"
    yield from spoken(reply, whole)
    if (heard := streamed(surface, [reply.wire(0)], policy)).text != heard_of(whole).text:
        yield f"streamed as {surface.path} it is heard otherwise: {heard.text!r}"
    held = policy_of(surface, "vllm", stream=False, tools=has_tools, thinking=False, guard=UNBOUNDED)
    late = events_of([reply.wire(0)], held)
    yield from spoken(reply, late)
    yield from (
        f"whole as {surface.path}: {word}" for word in reply.secrets if word in collected(surface, late).text
    )


def spoken(reply: Reply, events: list[Event]) -> Iterator[str]:
    yield from (f"{word} is heard" for word in reply.secrets if word in heard_of(events).text)


def search(seconds: float, seed: int, limit: int = 10**9) -> tuple[int, dict[str, str]]:
    """The number of replies that were read, and each fault with the smallest reply that shows it."""
    found: dict[str, str] = {}
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end and count < limit:
        count += 1
        one = rng.getrandbits(64)
        reply = draw_reply(at_random(one))
        for fault in faults(reply, at_random(one + 1)):
            key = fault.partition("SECRET")[0] or "a secret is heard"
            if key not in found or len(repr(reply)) < len(found[key]):
                found[key] = f"{fault}: {reply}"
    return count, found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the random choices; 0: another each time")
    options = parser.parse_args()
    count, found = search(options.seconds, options.seed or time.time_ns() % 10**9)
    print(*found.values(), f"{count:,} replies, {len(found)} kinds of faults", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
