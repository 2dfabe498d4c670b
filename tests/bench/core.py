"""`python -m tests.bench.core`: what the short way through the stream core gains, per chunk.

Both ways make the same bytes of the same chunks of plain text (a test says so on any text): the long one
through every stage, the short one through `Pipeline.passes`. Each figure is the least of many runs, in one
process, in turn; read the ratio.
"""

import time
from collections.abc import Callable

from app.stream.audit import ReplyAudit
from app.stream.clocks import Clocks
from app.stream.encode import ReplyHead, StreamEncoder
from app.stream.pipeline import Pipeline, StreamPolicy
from tests.bench.engine import Stream

CHUNKS = 2000
RUNS = 30


def chunks() -> list[bytes]:
    """Payloads of one reply in vLLM's shape, without HTTP's own framing."""
    stream = Stream(CHUNKS)
    return [chunk.split(b"\r\n", 1)[1][:-2] for _ in range(CHUNKS) if (chunk := stream.next())]


class Reply:
    """One reply through the core; `long` and `short` take a chunk."""

    def __init__(self) -> None:
        self.pipeline = Pipeline(StreamPolicy())
        self.clocks, self.audit = Clocks(0.0), ReplyAudit(False)
        self.encoder = StreamEncoder(ReplyHead("chatcmpl-1", 0, "annie"))

    def long(self, data: bytes) -> bytes:
        """Every stage looks at every event."""
        events = self.pipeline.feed(data)
        self.clocks.feed(events, 1.0)
        self.audit.feed(events)
        return self.encoder.feed(events)

    def short(self, data: bytes) -> bytes:
        """As `app.proxy.exchange` does it."""
        texts = self.pipeline.passes(data)
        if texts is None:
            return self.long(data)
        text = "".join(texts)
        self.clocks.text(text, 1.0)
        self.audit.text(text)
        return self.encoder.texts(texts)


def seconds(way: Callable[[Reply, bytes], bytes], data: list[bytes]) -> float:
    """Of the whole reply."""
    reply = Reply()
    start = time.perf_counter()
    for chunk in data:
        way(reply, chunk)
    return time.perf_counter() - start


def main() -> None:
    """Print both, and their ratio."""
    data = chunks()
    runs = [(seconds(Reply.long, data), seconds(Reply.short, data)) for _ in range(RUNS)]
    long, short = (min(times) / len(data) * 1e6 for times in zip(*runs, strict=True))
    print(f"long {long:.2f} us a chunk, short {short:.2f} us a chunk, ratio {long / short:.2f}")


if __name__ == "__main__":
    main()
