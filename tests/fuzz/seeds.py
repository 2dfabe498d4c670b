"""Where the corpus began: `python -m tests.fuzz.seeds FOLDER` writes each target's first inputs.

House cases, a few streams of real engines, and the shapes of issue 13. The corpus in the repository grew
from these by fuzzing and was minimised (`python -m tests.fuzz --minimise`).
"""

import hashlib
import json
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.shadow import record
from gates.contracts import sample
from gates.report import document, dsse
from tests.app.stream.wire import TOOLS, stream
from tests.fuzz.targets import _KEY, SIGNED_PAYLOAD
from tests.gates.report.examples import passing

ROOT = Path(__file__).parent.parent.parent
STREAMS = (
    "gpu-hermes-length", "gpu-hermes-tool-cut-by-length", "gpu-hermes-thinking-cut-by-length",
    "llama-hermes-error-field", "vllm-raw-length", "llama-hermes-tool-cut-by-length",
)  # fmt: skip
CALLS = (
    '{"name": "now", "arguments": {}}', '{"arguments": {"query": "a}b"}, "name": "web_search"}', '{"name": "now"}',
    '{"name": "run", "arguments": "{\\"a\\": 1}"}', '{"name": "run", "parameters": null}', '{"a": [1, {"b": "\\u00e9"}], "c": -1.5e3}',
)  # fmt: skip
XML = (
    "web_search>\n<parameter=query>\nOslo\n</parameter>\n</function>", "now>\n</function>\n</tool_call>",
    "search_memory>\n<parameter=limit>50306</parameter><parameter=query>a<b</parameter></function>",
    "run>\n<parameter=env>\n{\"A\": 1}\n<parameter=command>\nls\n</tool_call>",
)  # fmt: skip
SCHEMAS: tuple[Any, ...] = (
    {"properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}}},
    {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 4}, "properties": {"a": {"$ref": "#/a"}}},
    {"properties": {"a": {"anyOf": [{"type": "object"}, {"enum": [1, "b", None]}]}, "b": {"const": 3}}},
    {"$defs": {"n": {"type": "number"}}, "properties": {"x": {"$ref": "#/$defs/n"}}},
)  # fmt: skip
TEXTS = ("", "5", "true", "null", '{"a": [1]}', "[" * 50, "9" * 400, "NaN")
REQUESTS: tuple[tuple[int, dict[str, Any]], ...] = (
    (0, {"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": TOOLS[:1], "stream": True}),
    (0, {"model": "m", "messages": [{"role": "assistant", "content": [{"type": "text", "text": "<think>a</think>b"}]}]}),
    (0, {"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
         "function": {"name": "now", "arguments": "{"}}]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]}),
    (1, {"model": "m", "max_tokens": 5, "system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
         "tools": [{"name": "f", "input_schema": {"type": "object"}}], "thinking": {"type": "enabled", "budget_tokens": 9}}),
    (2, {"model": "m", "input": [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "c", "output": "b"}], "instructions": "i", "reasoning": {"effort": "none"}}),
    (3, {"model": "m", "prompt": ["a"], "stream": True, "stream_options": {"include_usage": True}}),
    (4, {"model": "m", "input": ["a", "b"], "encoding_format": "float"}),
)  # fmt: skip
TOML = """[engines.a]
dialect = "vllm"
driver = "attached"
url = "http://127.0.0.1:1"
[models.m]
live = "a"
thinking = 5
timeouts = { idle = 3.0 }
[gateway]
listen = "127.0.0.1:0"
"""
SPEECH = (
    "Call me at +47 22 33 44 55 or mail a.b@c.org", "http://u:p@h/x?api_key=abc", "password is hunter2", "10.0.0.1 fe80::1",
    "-----BEGIN PRIVATE KEY-----abc", "Bearer abcdefghijklmnop1", "2026-11-22", "a at b dot com", "http://a?" * 20,
)  # fmt: skip


def seeds() -> Iterator[tuple[str, bytes]]:
    """Target and input."""
    for name in STREAMS:
        body = (ROOT / "tests/data/streams" / f"{name}.sse").read_bytes()
        yield from (("sse", b"\2" + body[:1500]), ("pipeline", b"\x14\0" + body[:2500]))
        yield (
            "http",
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 300\r\n\r\n" + body[:300],
        )
        yield from (("chunks", event.removeprefix(b"data: ")) for event in body.split(b"\n\n")[:6])
    yield from _replies()
    for text in CALLS:
        yield from (("calls", text.encode()), ("value", text.encode()))
    yield from (("calls", text.encode()) for text in XML)
    for schema in SCHEMAS:
        yield from (("schema", json.dumps(schema).encode() + b"\0" + text.encode()) for text in TEXTS)
    yield from (("request", bytes([kind]) + json.dumps(body).encode()) for kind, body in REQUESTS)
    yield from _files()
    yield from (("redact", bytes([n % 3]) + text.encode()) for n, text in enumerate(SPEECH))


def _replies() -> Iterator[tuple[str, bytes]]:
    for n, text in enumerate(
        (
            "a<think>b</think>c",
            "b</think>\n\nc",
            "<tool_call>" + CALLS[1] + "</tool_call>",
            "<tool_call><function=" + XML[0],
        )
    ):
        wire = stream(*(text[at : at + 5] for at in range(0, len(text), 5)))
        yield "pipeline", bytes([4 + n, n]) + wire
        yield (
            "http",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nx: y\r\n\r\n"
            % (len(wire), wire),
        )
    for status in (
        b"204 No",
        b"101 Switching\r\nconnection: upgrade\r\nupgrade: x",
        b"100 Continue\r\n\r\nHTTP/1.1 200 OK",
        b"200 OK\r\nconnection: close",
    ):
        yield "http", b"HTTP/1.1 " + status + b"\r\n\r\nbody"
    yield from (("reply", random.Random(n).randbytes(32)) for n in range(60))


def _files() -> Iterator[tuple[str, bytes]]:
    yield "config", TOML.encode()
    yield "config", (ROOT / "deploy/embedded.toml").read_bytes()[-600:]
    text = struct.pack("<Q", 3) + b"a.b"
    pairs = (
        text
        + struct.pack("<II", 4, 7)
        + text
        + struct.pack("<I", 8)
        + text
        + text
        + struct.pack("<IIQ2I", 9, 4, 2, 1, 2)
    )
    yield "gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 3) + pairs
    yield "gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<IIQ", 9, 8, 2) + text + text
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": {"format": "pt"}}
    ).encode()
    shard = struct.pack("<Q", len(header)) + header + bytes(4)
    yield "safetensors", shard
    yield (
        "safetensors",
        shard + b"\0INDEX\0" + json.dumps({"weight_map": {"w": "input.safetensors", "v": "other"}}).encode(),
    )
    yield "report", dsse.render(dsse.sign(SIGNED_PAYLOAD, _KEY))
    statement = passing()
    few = replace(
        statement,
        samples=replace(statement.samples, lines=statement.samples.lines[:2]),
        tallies=statement.tallies[:2], failures=statement.failures[:1], distributions=statement.distributions[:1],
        decision=replace(statement.decision, gates=statement.decision.gates[:2]),
    )  # fmt: skip
    yield "statement", document.render(few)
    key = sample.SampleKey("s", "a", "e", "r", "candidate", "c", 0, "stream")
    asked = sample.Sample(
        key, {"messages": []}, "2026-11-22T00:00:00Z", 200, 5, (sample.TimedRead(7, b"data\xff"),), 9
    )
    yield "samples", sample.render(replace(asked, fault=sample.TransportFault("timeout", "x"))).encode()
    call = record.RecordedCall("now", {"a": 1})
    kept = record.ShadowRecord(
        "id",
        "2026-11-22T00:00:00+00:00",
        "m",
        "e",
        False,
        {"messages": [{"role": "user"}]},
        (call,),
        ("leak",),
        0.1,
    )
    yield "shadow", record.render(kept)


def main() -> None:
    """Write them."""
    for name, data in seeds():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    main()
