"""Replies through one parser: `python worker.py PEER CUTS < rows > results`, JSON lines. Only the standard library here:
the interpreter is that of the peer's environment, and this project is imported for the peer `manners` alone.

Each row is parsed as a reply that is not streamed, in one delta, in the smallest deltas (characters; for vLLM, whose
deltas are tokens, tokens), and in two deltas at each of at most CUTS places. An answer: [speech, thought, calls].
"""

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

PIECE = 4
"""Characters in a delta when time is taken: about a token."""
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


class Peer:
    """One parser, for one reply."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.speech, self.thought = "", ""
        self.calls: dict[int, list[str]] = {}

    def call(self, index: int, name: str | None, arguments: str | None) -> None:
        """One fragment of a call."""
        call = self.calls.setdefault(index, ["", ""])
        call[0] += name or ""
        call[1] += arguments or ""

    def feed(self, text: str) -> None:
        """Take one delta."""
        raise NotImplementedError

    def close(self) -> list[Any]:
        """What a caller heard of the stream."""
        return [self.speech, self.thought, [self.calls[index] for index in sorted(self.calls)]]

    def whole(self, text: str) -> list[Any]:
        """The same of a reply that is not streamed."""
        raise NotImplementedError

    def split(self, text: str) -> list[str]:
        """The smallest deltas that this parser sees in its server."""
        return list(text)


def vllm() -> type[Peer]:
    """Reasoning parser `qwen3` and tool parser `hermes`, composed as vLLM's server composes them."""
    from transformers import AutoTokenizer
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tokenizer = AutoTokenizer.from_pretrained("models/annie-nano-hf")
    tokenizer.add_tokens([*MARKERS, "<|im_start|>", "<|im_end|>"])
    tools = ParserManager.get_parser("hermes", "qwen3", enable_auto_tools=True)
    no_tools = ParserManager.get_parser(None, "qwen3")

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    start = ids("<|im_start|>assistant\n")

    class Vllm(Peer):
        def __init__(self, row: dict[str, Any]) -> None:
            super().__init__(row)
            asked = {"messages": [{"role": "user", "content": "x"}], "tools": row["tools"] or None}
            self.request = ChatCompletionRequest.model_validate(asked)
            # In its server, this parser learns from the request whether the model thinks.
            thinks = {"enable_thinking": row["thinks"]}
            parser = tools if row["tools"] else no_tools
            self.parser = parser(tokenizer, self.request.tools, chat_template_kwargs=thinks)

        def feed(self, text: str, *, finished: bool = False) -> None:
            delta = self.parser.parse_delta(text, ids(text), self.request, start, finished=finished)
            if delta is not None:
                self.speech += delta.content or ""
                self.thought += delta.reasoning or ""
                for call in delta.tool_calls or []:
                    function = call.function
                    self.call(call.index, function and function.name, function and function.arguments)

        def close(self) -> list[Any]:
            self.feed("", finished=True)
            return super().close()

        def whole(self, text: str) -> list[Any]:
            thought, speech, calls = self.parser.parse(text, self.request, True, ids(text))
            return [speech or "", thought or "", [[c.name, c.arguments] for c in calls or []]]

        def split(self, text: str) -> list[str]:
            pieces = [str(tokenizer.decode([i])) for i in ids(text)]
            return pieces if "".join(pieces) == text else [text]  # a token may be half a character

    return Vllm


def sglang() -> type[Peer]:
    """Reasoning parser `qwen3`, then tool parser `qwen25` (hermes), as in SGLang's server."""
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    class Sglang(Peer):
        def __init__(self, row: dict[str, Any]) -> None:
            super().__init__(row)
            self.reasoning = ReasoningParser("qwen3", stream_reasoning=True)
            tools = [Tool.model_validate(tool) for tool in row["tools"]]
            self.tools = FunctionCallParser(tools, "qwen25") if tools else None

        def feed(self, text: str) -> None:
            thought, speech = self.reasoning.parse_stream_chunk(text)
            self.thought += thought or ""
            if self.tools is not None and speech:
                speech, made = self.tools.parse_stream_chunk(speech)
                for call in made:
                    self.call(call.tool_index, call.name, call.parameters)
            self.speech += speech or ""

        def whole(self, text: str) -> list[Any]:
            thought, speech = self.reasoning.parse_non_stream(text)
            made: list[Any] = []
            if self.tools is not None and self.tools.has_tool_call(speech or ""):
                speech, made = self.tools.parse_non_stream(speech)
            return [speech or "", thought or "", [[c.name, c.parameters] for c in made]]

    return Sglang


def transformers() -> type[Peer]:
    """The parser of `response_template`, with a template for think tags and hermes calls."""
    from transformers.utils.chat_parsing import ResponseParser, parse_response

    call = {"type": "function", "function": "{content}"}
    tags = {"open": "<tool_call>", "close": "</tool_call>"}
    template = {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "content": {"close": "<|im_end|>"},
            "thinking": {"open": "<think>", "close": "</think>"},
            "tool_calls": {**tags, "repeats": True, "content": "json", "transform": call},
        },
    }

    def made(message: dict[str, Any]) -> list[Any]:
        functions = [c["function"] for c in message.get("tool_calls", [])]
        return [[f.get("name"), json.dumps(f.get("arguments", {}))] for f in functions if isinstance(f, dict)]

    class Transformers(Peer):
        def __init__(self, row: dict[str, Any]) -> None:
            super().__init__(row)
            self.parser = ResponseParser(template, prefix="", tools=row["tools"])

        def _take(self, events: list[dict[str, Any]]) -> None:
            for event in events:
                if event["type"] == "region_chunk":
                    self.speech += event["text"] if event["field"] == "content" else ""
                    self.thought += event["text"] if event["field"] == "thinking" else ""

        def feed(self, text: str) -> None:
            self._take(self.parser.feed(text))

        def close(self) -> list[Any]:
            message, events = self.parser.finalize()
            self._take(events)
            return [self.speech, self.thought, made(message)]

        def whole(self, text: str) -> list[Any]:
            message = parse_response(text, template, prefix="", tools=self.row["tools"])
            return [message.get("content", ""), message.get("thinking", ""), made(message)]

    return Transformers


def smg() -> type[Peer]:
    """smg's gateway at the address behind `smg:`; it opens its parsers to whole texts, to streams of gRPC workers only."""
    base = sys.argv[1].partition(":")[2]

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent = json.dumps(body).encode()
        request = urllib.request.Request(f"{base}/parse/{path}", sent, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))

    class Smg(Peer):
        def whole(self, text: str) -> list[Any]:
            split = ask("reasoning", {"text": text, "reasoning_parser": "qwen3"})
            speech, made = split["normal_text"], []
            if self.row["tools"]:
                asked = {"text": speech, "tool_call_parser": "qwen", "tools": self.row["tools"]}
                answer = ask("function_call", asked)
                speech, made = answer["remaining_text"], [c["function"] for c in answer["tool_calls"]]
            return [speech, split.get("reasoning_text") or "", [[c["name"], c["arguments"]] for c in made]]

    return Smg


def manners() -> type[Peer]:
    """This gateway's whole stream core, from an engine's bytes on."""
    from app.stream.holdback import UNBOUNDED, ThinkPolicy
    from app.stream.pipeline import Pipeline, StreamPolicy
    from app.stream.schema import Tools
    from gates.reply.events import CallArguments, CallStart, Text, Thought

    class Manners(Peer):
        def __init__(self, row: dict[str, Any]) -> None:
            super().__init__(row)
            self.pipeline = self._pipeline(0)

        def _pipeline(self, guard: int) -> Pipeline:
            tools = Tools(self.row["tools"]) if self.row["tools"] else None
            return Pipeline(StreamPolicy(ThinkPolicy(guard=guard), tools, "t", format=self.row["format"]))

        def feed(self, text: str, finish: str | None = None) -> None:
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
            sent = b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"
            self._take(self.pipeline.feed(sent))

        def _take(self, events: list[Any]) -> None:
            for event in events:
                if type(event) is Text:
                    self.speech += event.text
                elif type(event) is Thought:
                    self.thought += event.text
                elif type(event) is CallStart:
                    self.call(event.index, event.name, "")
                elif type(event) is CallArguments:
                    self.call(event.index, None, event.fragment)

        def close(self) -> list[Any]:
            self.feed("", "stop")
            self._take(self.pipeline.feed(b"data: [DONE]\n\n"))
            return super().close()

        def whole(self, text: str) -> list[Any]:
            self.pipeline = self._pipeline(UNBOUNDED)  # nobody waits for its beginning
            self.feed(text)
            return self.close()

    return Manners


def heard(peer: type[Peer], row: dict[str, Any], deltas: list[str]) -> list[Any]:
    """What is heard of these deltas."""
    parser = peer(row)
    for delta in deltas:
        parser.feed(delta)
    return parser.close()


def _comparable(answer: list[Any]) -> list[Any]:
    """Arguments are compared as JSON where they are JSON."""
    calls = []
    for name, arguments in answer[2]:
        try:
            calls.append((name, json.loads(arguments)))
        except ValueError:
            calls.append((name, arguments))
    return [answer[0], answer[1], calls]


def result(peer: type[Peer], row: dict[str, Any], most: int) -> dict[str, Any]:
    """All that is measured of one row."""
    text, out = row["text"], {"id": row["id"], "whole": peer(row).whole(row["text"])}
    if peer.__name__ == "Smg":
        return out
    smallest = peer(row).split(text)
    out["streamed"] = heard(peer, row, smallest)
    places = [sum(map(len, smallest[:n])) for n in range(1, len(smallest))]
    step = max(1, -(-len(places) // most))
    one = _comparable(heard(peer, row, [text]))
    out["differing"] = int(_comparable(out["streamed"]) != one)
    for at in places[::step]:
        out["differing"] += _comparable(heard(peer, row, [text[:at], text[at:]])) != one
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    parser = peer(row)
    began = time.process_time()
    for piece in pieces:
        parser.feed(piece)
    return out | {
        "cuts": len(places[::step]) + 1,
        "pieces": len(pieces),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    makers: list[Callable[[], type[Peer]]] = [vllm, sglang, transformers, smg, manners]
    peer = next(make for make in makers if make.__name__ == sys.argv[1].partition(":")[0])()
    for line in sys.stdin:
        row = json.loads(line)
        try:
            out = result(peer, row, int(sys.argv[2]))
        except Exception as error:  # a parser that breaks on a row is a finding, not an end
            out = {"id": row["id"], "error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(out, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
