"""A fast search for one fault: a secret of a reply that is heard. The differential fuzz compares far more, and far slower.

`python -m tests.fuzz.secrets [--seconds N] [--seed N] [--corpus FOLDER…] [--processes N]` reads each reply in one way
that is drawn with it. Half of the replies are mutations of the inputs of the fuzzer's target `reply`, the others random
ones of many words. Prints each finding once, with the smallest reply that shows it, and exits with 1 if there is one.
"""

import argparse
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app.stream.events import Event, Logprobs
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.spoken_tokens import SpokenTokens
from tests.fuzz.differential import (
    Fault,
    Setting,
    by_size,
    draw_setting,
    faults_by,
    read_input,
    secrets_in,
    show,
    sliced,
    smallest,
    uncut,
)
from tests.fuzz.draw import Draw, RandomSource
from tests.fuzz.hearing import Heard, events_of, heard_of
from tests.fuzz.replies import Reply, Writer, draw_reply
from tests.fuzz.targets import compile_tags

FOLDERS = sorted(Path(__file__).parent.glob("*/reply"))
"""The corpus, and what was wrong once."""
FEWEST_WORDS = 7
"""Of a random reply. With fewer, its parts hardly meet."""
LONGEST = 160
"""Bytes of an input; the rest of a longer one is not read."""


@dataclass(frozen=True)
class Way:
    """How a reply reaches us: characters in a delta and bytes in a read (0: all), and whether our caller streams."""

    delta: int = 0
    read: int = 0
    stream: bool = True
    token: int = 0  # characters; the tokens with their log-probabilities are heard, not the text

    def __str__(self) -> str:
        sizes = f"{self.delta or 'uncut'} deltas, {self.read or 'whole'} reads"
        if self.token:
            return f"tokens of {self.token} ({sizes})"
        return f"streamed ({sizes})" if self.stream else "whole"

    def faults(self, reply: Reply, setting: Setting) -> Iterator[Fault]:
        """The secrets that are heard."""
        cut = by_size(self.delta) if self.delta else uncut
        wire = Writer(setting.dialect, cut, token=self.token).write(reply)
        reads, policy = sliced(wire, self.read) if self.read else [wire], setting.policy(self.stream)
        heard = heard_of(events_of(reads, policy)) if not self.token else Heard(tokens_of(reads, policy))
        yield from secrets_in(heard, reply, setting, str(self))


def tokens_of(reads: Iterable[bytes], policy: StreamPolicy) -> str:
    """The tokens whose log-probabilities a caller is told, one behind the other."""
    pipeline, spoken = Pipeline(policy), SpokenTokens()
    events: list[Event] = []
    for read in reads:
        spoken.data(read)
        events += spoken.align(pipeline.feed(read), pipeline.is_settled)
    events += spoken.align(pipeline.close(), pipeline.is_settled)
    return "".join(told.token for event in events if isinstance(event, Logprobs) for told in event.tokens)


WAYS = (
    *(Way(),) * 16,
    *(Way(delta=size) for size in (1, 2, 3, 7)),
    *(Way(read=size) for size in (1, 3, 7, 64)),
    Way(delta=3, read=7),
    Way(token=4),
    Way(delta=7, read=64, token=2),
    *(Way(stream=False),) * 2,
)
"""Uncut is the cheapest by far; the differential fuzz says whether the others differ from it."""


@dataclass
class Found:
    """What one process found, by the shape of the smallest reply, and how many replies it read in which way."""

    findings: dict[str, str] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=Counter)


def mutated(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Some bytes made others, put in or taken out, or the end of another input put on."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        at, kind = rng.randrange(len(out) + 1), rng.random()
        if at == len(out) or kind < 0.15:
            out.insert(at, rng.randrange(256))
        elif kind < 0.25:
            del out[at]
        elif kind < 0.85:
            out[at] = rng.randrange(256)
        else:
            other = rng.choice(corpus)
            out[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(out[:LONGEST])


def inputs(folders: Iterable[Path]) -> list[bytes]:
    """The inputs in these folders, in one order on every machine."""
    return [path.read_bytes() for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]


def shape(reply: Reply) -> str:
    """The reply without what differs among replies that show the same fault."""
    return re.sub(r"(SECRET|WORD)\d+Z", r"\1", show(Reply(reply.pieces)))


def drawn(corpus: Sequence[bytes], rng: random.Random) -> tuple[Reply, Setting]:
    """A reply with a secret, and a setting."""
    while True:
        if corpus and rng.random() < 0.5:
            reply, setting = read_input(mutated(rng.choice(corpus), corpus, rng))
            fewest = 1
        else:
            draw = Draw(RandomSource(rng.getrandbits(64)))
            reply, setting, fewest = draw_reply(draw), draw_setting(draw), FEWEST_WORDS
        words = sum(len(piece.secrets) + len(piece.words) for piece in reply.pieces)
        if words >= fewest and any(True for _ in reply.secrets()):
            return reply, setting


def search(corpus: Sequence[bytes], seconds: float, seed: int, limit: int = 10**12) -> Found:
    """Read replies until the time or their number is over. Findings are printed as they come."""
    compile_tags()
    found, rng, end = Found(), random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end and found.replies.total() < limit:
        reply, setting = drawn(corpus, rng)
        way = rng.choice(WAYS)
        found.replies[str(way)] += 1
        check = partial(faults_by, way.faults)
        fault = next(check(reply, setting), None)
        if fault is None:
            continue
        small, least = smallest(reply, setting, fault, check)
        if (key := shape(small)) not in found.findings:
            found.findings[key] = f"{show(small)} {setting}: {least.kind}: {least.detail}"
            print(found.findings[key], flush=True)
    return found


def main() -> int:
    """Search, and fail on a finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the random choices; 0: another each time")
    parser.add_argument(
        "--corpus", type=Path, nargs="*", default=[], help="more inputs, besides the repository's"
    )
    parser.add_argument("--processes", type=int, default=1, help="each with a seed of its own")
    options = parser.parse_args()
    seed = options.seed or time.time_ns() % 10**9
    corpus = inputs([*FOLDERS, *options.corpus])
    replies, shapes = Counter[str](), set[str]()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("forkserver")) as pool:
        seeds = range(seed, seed + options.processes)
        for found in pool.map(partial(search, corpus, options.seconds), seeds):
            replies += found.replies
            shapes |= found.findings.keys()
    for way, count in sorted(replies.items()):
        print(f"{count:>12,} {way}")
    print(
        f"{replies.total():>12,} replies, seeds {seeds[0]} to {seeds[-1]}, {len(corpus)} inputs, findings: {len(shapes)}"
    )
    return 1 if shapes else 0


if __name__ == "__main__":
    sys.exit(main())
