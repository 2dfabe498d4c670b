"""The behaviour probe: questions of our own, asked as callers ask, with thinking off, and judged as callers' replies are.

A prompt can make any model say anything. So a caller's reply only asks for this probe, and the probe decides.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from app.api.chat_request import check_chat
from app.api.engine_request import AskedEngine, stream_policy, upstream_body
from app.api.surface import Surface
from app.errors.tree import MannersError
from app.stream.audit import ReplyAudit
from app.stream.pipeline import Pipeline
from app.upstream.client import Upstream
from deploy.engine.questions import OFF_ROOM

QUESTIONS: Final = (
    "Good morning! How are you? Answer in one sentence.",
    "What is 17 times 6? Answer in one sentence.",
    "Which planet is farther from the sun, Mars or Venus? Answer in one sentence.",
    "I had five apples and ate two of them. How many are left? Answer in one sentence.",
    "What should I take along when it rains? Answer in one sentence.",
)
ANSWER_SECONDS: Final = 15.0
ANSWER_BYTES: Final = 256 << 10


async def ask_questions(upstream: Upstream, url: str, asked: AskedEngine) -> Sequence[ReplyAudit]:
    """The audits of the replies; fewer than there are questions if one of them failed, or was cut off."""
    audits: list[ReplyAudit] = []
    for question in QUESTIONS:
        body = {"model": "", "messages": [{"role": "user", "content": question}], "max_tokens": OFF_ROOM}
        chat = check_chat({**body, "stream": True})
        policy = stream_policy(chat, asked, "probe")
        pipeline = Pipeline(policy)
        audit = ReplyAudit(thinking=False)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                sent = upstream_body(chat, body, asked)
                status, streams, raw = await upstream.read(url + Surface.engine_path, sent, {}, ANSWER_BYTES)
            if status != 200:
                break
            read = pipeline.feed if streams else pipeline.feed_message
            audit.feed([*read(raw), *pipeline.close()])
        except (MannersError, TimeoutError):
            break
        if audit.reason != "stop":
            break
        audits.append(audit)
    return audits
