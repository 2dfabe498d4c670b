"""Server-sent events: payloads are cut at CR, LF and CRLF, wherever reads fall."""

import pytest

from gates.reply.sse import EventTooLong, SSEDecoder

TABLE = {
    "LF": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "no space after the colon": (b"data:a\n\n", [b"a"]),
    "two spaces: one belongs to the data": (b"data:  a\n\n", [b" a"]),
    "several data lines are one event": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "comments and other fields are nothing": (b": ping\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
    "an error field is a payload": (b'error: {"code":500}\n\n', [b'{"error":{"code":500}}']),
    "an event called error is one": (b'event: error\r\ndata: {"code":500}\n\ndata: a\n\n', [b'{"error":{"code":500}}', b"a"]),
    "whatever its shape": (b"event:error\ndata: no\ndata: more\n\n", [b'{"error":no\nmore}']),
    "an error in its envelope stays in it": (b'event: error\ndata: {"error":{}}\n\n', [b'{"error":{}}']),
    "the last name of an event counts": (b"event: error\nevent: message\ndata: a\n\n", [b"a"]),
    "a field without a colon": (b"data\ndata: a\n\n", [b"\na"]),
    "no blank line at the end": (b"data: a\n\ndata: b", [b"a", b"b"]),
    "line separators of Unicode are text": ("data: a\u2028b\u2029c\u0085d\x0ce\n\n".encode(), ["a\u2028b\u2029c\u0085d\x0ce".encode()]),
    "blank lines alone are nothing": (b"\n\n\r\n\r\n", []),
}  # fmt: skip


@pytest.mark.parametrize("data, expected", TABLE.values(), ids=TABLE.keys())
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_payloads_are_the_same_however_the_bytes_arrive(
    data: bytes, expected: list[bytes], size: int
) -> None:
    decoder = SSEDecoder()
    got = [p for at in range(0, len(data), size) for p in decoder.feed(data[at : at + size])]
    assert got + decoder.close() == expected


def test_a_crlf_that_is_cut_in_two_ends_one_line_and_not_two() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\ndata: b\r\n\r\n") == [b"a\nb"]


@pytest.mark.parametrize("piece", [b"x" * 7, b"data: xx\n"])
def test_an_event_that_never_ends_is_refused_at_the_limit(piece: bytes) -> None:
    decoder = SSEDecoder(limit=100)

    def feed_for_ever() -> None:
        while True:
            decoder.feed(b"data: " + piece if piece.startswith(b"x") else piece)

    with pytest.raises(EventTooLong):
        feed_for_ever()


def test_the_short_way_takes_only_whole_events() -> None:
    assert SSEDecoder().whole_payloads(b'data: {"a": 1}\n\n') == [b'{"a": 1}']
    assert SSEDecoder().whole_payloads(b"data: a\n\ndata: b\n\n") == [b"a", b"b"]
    for data in (b"data: a\n", b"data: a\ndata: b\n\n", b"data: a\rdata: b\n\n", b": a\n\n", b"data:a\n\n"):
        assert SSEDecoder().whole_payloads(data) is None
    busy = SSEDecoder()
    busy.feed(b"data: begun")
    assert busy.whole_payloads(b"data: a\n\n") is None
