"""The differential fuzz: one reply, every cut, three dialects, four surfaces, streamed and whole.

`python -m tests.fuzz.differential --seconds N [--seed N]` draws replies until the time is over and prints
each fault with the smallest reply that shows it. What is compared:

* cut        what is heard does not depend on how the engine cut its deltas, or the network its bytes
* whole      a stream with an unbounded hold-back says what a whole reply says
* surface    every surface tells the same text, calls, finish reason and error
* secret     nothing of a closed thought or of a broken call is heard
* silence    a reply of which nothing is left, since something was taken out of it, is an error
* word       in a reply without a fault no word of the prose is lost
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from app.stream.pipeline import Pipeline, StreamPolicy
from gates.contracts.dialect import Dialect
from tests.fuzz.draw import ByteSource, Draw, RandomSource
from tests.fuzz.hearing import (
    CHATS,
    COMPLETIONS,
    Heard,
    collected,
    events_of,
    heard_of,
    policy_of,
    streamed,
)
from tests.fuzz.replies import DIALECTS, Reply, Writer, draw_reply, whole_message

UNBOUNDED = sys.maxsize
DELTA_SIZES = (1, 2, 3, 5, 7, 20, 40)
READ_SIZES = (1, 7, 64, 1000)
FULL_SWEEP = 200
"""Characters of a reply up to which each position of a single cut is tried."""

Cut = Callable[[str], list[str]]


@dataclass(frozen=True)
class Setting:
    """What a request lets the core assume."""

    dialect: Dialect
    tools: bool
    thinking: bool
    guard: int

    def policy(self, stream: bool = True, surface: str = "chat") -> StreamPolicy:
        return policy_of(
            CHATS[surface],
            self.dialect,
            stream=stream,
            tools=self.tools,
            thinking=self.thinking,
            guard=self.guard,
        )


@dataclass(frozen=True)
class Fault:
    """What is wrong with a reply."""

    kind: str
    detail: str


Check = Callable[[Reply, Setting], Iterator[Fault]]


def by_size(size: int) -> Cut:
    """Deltas of so many characters."""
    return lambda text: [text[at : at + size] for at in range(0, len(text), size)]


def uncut(text: str) -> list[str]:
    """One delta a piece."""
    return [text] if text else []


def cut_once(at: int) -> Cut:
    """The whole reply in two deltas: `at` counts over all of its pieces."""
    left = [at]

    def cut(text: str) -> list[str]:
        here, left[0] = left[0], left[0] - len(text)
        return [part for part in (text[: max(here, 0)], text[max(here, 0) :]) if part]

    return cut


def sliced(data: bytes, size: int) -> Iterator[bytes]:
    """Reads of so many bytes."""
    return (data[at : at + size] for at in range(0, len(data), size))


def cuts_of(reply: Reply, quick: bool) -> Iterator[tuple[str, Cut]]:
    """The ways to cut a reply into deltas, each with a name; a few of them if it must be quick."""
    if quick:
        yield from ((f"deltas of {size}", by_size(size)) for size in (1, 3, 20))
        return
    for size in DELTA_SIZES:
        yield f"deltas of {size}", by_size(size)
    length = sum(len(piece.text) for piece in reply.pieces)
    if length <= FULL_SWEEP:
        for at in range(1, length):
            yield f"cut at {at}", cut_once(at)


def faults_of(reply: Reply, setting: Setting, *, quick: bool = False) -> Iterator[Fault]:
    """Everything that is wrong with how this reply is heard."""
    for check in (partial(_cut_faults, quick=quick), *CHECKS):
        yield from faults_by(check, reply, setting)


def faults_by(check: Check, reply: Reply, setting: Setting) -> Iterator[Fault]:
    """What one check finds. Whatever it raises is a fault, too."""
    try:
        yield from check(reply, setting)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        yield Fault(type(error).__name__, f"{error} ({frame.filename}:{frame.lineno})")


def _stream(reply: Reply, setting: Setting, cut: Cut = uncut) -> Heard:
    return heard_of(events_of([Writer(setting.dialect, cut).write(reply)], setting.policy()))


def _whole(reply: Reply, setting: Setting, cut: Cut = uncut) -> Heard:
    wire = Writer(setting.dialect, cut).write(reply)
    return heard_of(events_of([wire], setting.policy(stream=False)))


def _whole_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    """With thinking on, how much of a stream is held back is the dialect's affair: asked with it off."""
    setting = replace(setting, guard=UNBOUNDED, thinking=False)
    if told := _difference(_stream(reply, setting), _whole(reply, setting), "streamed", "whole"):
        yield Fault("whole", told)


def _cut_faults(reply: Reply, setting: Setting, quick: bool) -> Iterator[Fault]:
    """An engine streams to us whether or not our caller streams."""
    for hear, name in ((_stream, "streamed"), (_whole, "whole")):
        base = hear(reply, setting)
        for cut_name, cut in cuts_of(reply, quick):
            if told := _difference(base, hear(reply, setting, cut), "uncut", cut_name):
                yield Fault("cut", f"{name}: {told}")
                break


def _read_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    wire = Writer(setting.dialect, uncut).write(reply)
    base = _stream(reply, setting)
    for size in READ_SIZES:
        heard = heard_of(events_of(sliced(wire, size), setting.policy()))
        if told := _difference(base, heard, "one read", f"reads of {size}"):
            yield Fault("read", told)
            return


def _shape_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    """Several fields in one delta, and frames that say nothing between the others."""
    base = _stream(reply, setting)
    for size in (1, 4, 1000):
        for shape in ({"merged": True}, {"noisy": True}):
            wire = Writer(setting.dialect, by_size(size), **shape).write(reply)
            heard = heard_of(events_of([wire], setting.policy()))
            if told := _difference(base, heard, "plain", f"{shape} in deltas of {size}"):
                yield Fault("shape", told)
                return


def _message_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    """An engine that did not stream although it was asked to."""
    payload = whole_message(reply)
    if payload is None:
        return
    events = Pipeline(setting.policy(stream=False)).feed_message(payload)
    if told := _difference(_whole(reply, setting), heard_of(events), "engine streamed", "engine did not"):
        yield Fault("message", told)


def _secret_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    yield from secrets_in(_stream(reply, setting), reply, setting, "streamed")
    yield from secrets_in(_whole(reply, setting), reply, setting, "whole")


def secrets_in(heard: Heard, reply: Reply, setting: Setting, name: str) -> Iterator[Fault]:
    """The secrets of the reply that were heard and must not be. `name` says how: "whole", or a way of streaming."""
    for secret in reply.secrets():
        if secret.tools and not setting.tools:
            continue
        if secret.reasoning and not setting.thinking:
            continue  # an engine may put its answer there when it was told not to think
        if secret.whole and name != "whole":
            continue
        if heard.holds(secret.word, secret.calls):
            yield Fault("secret", f"{secret.word!r} is heard {name}: {heard}")


def _silence_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    """A reply of which nothing is left, because something was taken out of it, is an error."""
    hidden = any(p.field == "content" and any(not s.tools for s in p.secrets) for p in reply.pieces)
    if setting.thinking or reply.finish != "stop" or not hidden:
        return
    for name, heard in (("streamed", _stream(reply, setting)), ("whole", _whole(reply, setting))):
        if heard.error is None and not heard.text.strip() and not heard.calls:
            yield Fault("silence", f"{name}: nothing is heard, and no error: {heard}")


def _word_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    if setting.thinking or not reply.is_plain:
        return  # asked to think, an engine may put its thought into the text before the field
    words = [word for piece in reply.pieces for word in piece.words]
    for heard in (_stream(reply, setting), _whole(reply, setting)):
        places = [heard.text.find(word) for word in words]
        if -1 in places or places != sorted(places):
            yield Fault("word", f"{words} are not heard in order: {heard}")


def _surface_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    wire = Writer(setting.dialect, by_size(3)).write(reply)
    pieces = [read + b"\n\n" for read in wire.split(b"\n\n") if read]
    for stream in (True, False):
        heard = {}
        for name, surface in CHATS.items():
            policy = setting.policy(stream, name)
            if stream:
                heard[name] = streamed(surface, pieces, policy)
            else:
                heard[name] = collected(surface, events_of([wire], policy), setting.tools)
        for name in ("messages", "responses"):
            if told := _surface_difference(heard["chat"], heard[name], name):
                yield Fault("surface", f"{'streamed' if stream else 'whole'}: {told}")


def _completion_faults(reply: Reply, setting: Setting) -> Iterator[Fault]:
    """The older API has one field and no tools: a whole reply says what a chat without tools says.

    A stream does not: no template stands behind this API, and other hold-backs follow from that. But it
    depends on no cut either.
    """
    texts = replace(reply, pieces=tuple(p for p in reply.pieces if p.field == "content"))
    setting = replace(setting, tools=False, thinking=False)

    def hear(stream: bool, cut: Cut) -> Heard:
        policy = policy_of(
            COMPLETIONS, setting.dialect, stream=stream, tools=False, thinking=False, guard=setting.guard
        )
        wire = Writer(setting.dialect, cut, completion=True).write(texts)
        if not stream:
            return collected(COMPLETIONS, events_of([wire], policy), False)
        return streamed(COMPLETIONS, [read + b"\n\n" for read in wire.split(b"\n\n") if read], policy)

    if told := _difference(hear(True, uncut), hear(True, by_size(3)), "uncut", "deltas of 3"):
        yield Fault("completions", f"streamed: {told}")
    chat, heard = _whole(texts, setting), hear(False, uncut)
    if told := _difference(Heard(error=chat.error) if chat.error else chat, heard, "chat", "completions"):
        yield Fault("completions", f"whole: {told}")


CHECKS = (
    _shape_faults,
    _read_faults,
    _whole_faults,
    _message_faults,
    _secret_faults,
    _silence_faults,
    _word_faults,
    _surface_faults,
    _completion_faults,
)


def _difference(one: Heard, other: Heard, name: str, other_name: str) -> str:
    """What two callers heard differently; "" if nothing. After an error its code and the text count."""
    for what in ("error", "text", "finish") if one.error else ("error", "text", "calls", "places", "finish"):
        if getattr(one, what) != getattr(other, what):
            return f"{what}: {name} {getattr(one, what)!r}, {other_name} {getattr(other, what)!r}"
    return ""


def _surface_difference(chat: Heard, other: Heard, name: str) -> str:
    if (chat.error is None) != (other.error is None):
        return f"error: chat {chat.error!r}, {name} {other.error!r}"
    if chat.error:
        return ""
    for what in ("text", "finish", "parsed"):
        if what == "parsed" and chat.finish == "length":
            continue  # a call that was cut has no value
        mine, theirs = getattr(chat, what), getattr(other, what)
        if what == "parsed":
            theirs = [(n, v["INVALID_JSON"] if _is_wrapped(v) else v) for n, v in theirs]
        if mine != theirs:
            return f"{what}: chat {mine!r}, {name} {theirs!r}"
    return ""


def _is_wrapped(value: object) -> bool:
    """Anthropic's form for arguments that are no JSON object."""
    return isinstance(value, dict) and list(value) == ["INVALID_JSON"]


# ------------------------------------------------------------------------------------------ search


def smallest(reply: Reply, setting: Setting, fault: Fault, find: Check = faults_of) -> tuple[Reply, Fault]:
    """The reply made as small as it can be with a fault of the same kind that `find` finds."""

    shrinking = True
    while shrinking:
        shrinking = False
        for candidate in _smaller(reply, fault.kind):
            found = next((f for f in find(candidate, setting) if f.kind == fault.kind), None)
            if found is not None:
                reply, fault, shrinking = candidate, found, True
                break
    return reply, fault


def _smaller(reply: Reply, kind: str) -> Iterator[Reply]:
    pieces = reply.pieces
    for at in range(len(pieces)):
        if not (at and pieces[at - 1].joined):
            last = next((n for n in range(at, len(pieces)) if not pieces[n].joined), at)
            yield replace(reply, pieces=pieces[:at] + pieces[last + 1 :])
    if kind in ("word", "secret"):
        return  # these know only whole pieces
    if (reply.finish, reply.usage) != ("stop", False) and reply.finish is not None:
        yield replace(reply, finish="stop", usage=False, done=True)
    for at, piece in enumerate(pieces):
        for size in (len(piece.text) // 2, 8, 3, 1):
            for start in range(0, len(piece.text) if size else 0, max(size, 1)):
                text = piece.text[:start] + piece.text[start + size :]
                yield replace(reply, pieces=(*pieces[:at], replace(piece, text=text), *pieces[at + 1 :]))


def draw_setting(draw: Draw) -> Setting:
    """A dialect and the switches of a request."""
    return Setting(
        draw.pick(DIALECTS), draw.below(4) > 0, draw.chance(3), draw.pick((0, 0, 5, 160, 1024, UNBOUNDED))
    )


def read_input(data: bytes) -> tuple[Reply, Setting]:
    """What an input of the target `reply` says. A corpus depends on each choice in it."""
    draw = Draw(ByteSource(data))
    guards = (0, 5, 160, 1024, UNBOUNDED)
    setting = Setting(draw.pick(DIALECTS), draw.below(4) > 0, draw.chance(3), draw.pick(guards))
    return draw_reply(draw), setting


def show(reply: Reply) -> str:
    """A reply in one line."""
    said = [f"{p.field}{'=' + p.name if p.name else ''} {p.text!r}" for p in reply.pieces]
    return f"[{' | '.join(said)}] finish={reply.finish}"


def search(seconds: float, seed: int, limit: int = 10**9) -> tuple[int, dict[str, list[str]]]:
    """Draw replies until the time or their number is over: how many, and up to five lines a kind of fault."""
    found: dict[str, list[str]] = {}
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end and count < limit:
        draw = Draw(RandomSource(seed + count))
        count += 1
        reply, setting = draw_reply(draw), draw_setting(draw)
        for kind, fault in {fault.kind: fault for fault in faults_of(reply, setting)}.items():
            lines = found.setdefault(kind, [])
            if len(lines) < 5:
                small, least = smallest(reply, setting, fault)
                lines.append(f"seed {seed + count - 1}: {show(small)} {setting}: {least.detail}")
    return count, found


def main() -> int:
    """Search, print, and fail on a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first reply; 0: another each time")
    options = parser.parse_args()
    seed = options.seed or time.time_ns() % 10**9
    print(f"seeds from {seed} on", flush=True)  # so that a run that is cut off can be done again
    count, found = search(options.seconds, seed)
    for kind, lines in sorted(found.items()):
        print(f"{kind}:", *lines, sep="\n  ")
    print(f"{count} replies, seeds {seed} to {seed + count - 1}, kinds of fault: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
