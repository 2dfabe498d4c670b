"""What is taken out of a conversation before it is kept."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.shadow.record import redacted
from app.telemetry import redact
from app.telemetry.redact import DROPPED, Redactor, TooManySecrets, compiled
from tests.app.shadow.records import record

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123_-x"

CASES = [
    ("write to maya.rao@example.org please", "write to EMAIL_A please"),
    ("Maya.Rao@example.org or maya.rao@EXAMPLE.org", "EMAIL_A or EMAIL_A"),
    ("log in as root@localhost", "log in as EMAIL_A"),
    ("it is maya dot rao at example dot org", "it is EMAIL_A"),
    ("call +91 98765 43210 now", "call NUMBER_A now"),
    ("98765-43210 is 9876543210", "NUMBER_A is NUMBER_A"),
    ("(555) 123-4567", "NUMBER_A"),
    ("card 4111 1111 1111 1111, CVV 123", "card NUMBER_A, CVV 123"),
    ("order 20261121007", "order NUMBER_A"),
    ("\u0967\u0968\u0969\u096a\u096b\u096c\u096d\u096e", "NUMBER_A"),
    ("x1234567y", "xNUMBER_Ay"),
    ("it is 9 8 7 6 5 4 3 2", "it is NUMBER_A"),
    ("on 2026-11-21 at 10:30", "on 2026-11-21 at 10:30"),
    ("on 21/11/2026, at 7.30", "on 21/11/2026, at 7.30"),
    ("1,000,000 people in 1999", "1,000,000 people in 1999"),
    ("set it to 22.5 degrees for 20 minutes", "set it to 22.5 degrees for 20 minutes"),
    ("ping 192.168.1.17 and 192.168.1.17:80", "ping IP_A and IP_A:80"),
    ("from 2001:db8::8a2e:370:7334 too", "from IP_A too"),
    ("it is 10:20:30 now", "it is 10:20:30 now"),
    ("get https://maya:hunter2@example.org/x?y=1 now", "get URL_A now"),
    ("see https://example.org/x?page=2&token=abc123 now", "see URL_A now"),
    ("see https://example.org/tokens/x?page=2", "see https://example.org/tokens/x?page=2"),
    ("postgres://app:pw@db/annie", "URL_A"),
    ("Authorization: Bearer abc.def-123456", "Authorization: KEY_A"),
    ("use bearer 8f2b1c9d0e now", "use bearer KEY_A now"),
    (f"my token {JWT} works", "my token KEY_A works"),
    ("key sk-proj-abcDEFghiJKLmno1", "key KEY_A"),
    ("api_key=abcd1234!x", "api_key=KEY_A"),
    ("my password is hunter2, say hunter2", "my password is KEY_A, say KEY_A"),
    ("the hash d41d8cd98f00b204e9800998ecf8427e", "the hash KEY_A"),
    ("id 123e4567-e89b-12d3-a456-426614174000", "id ID_A"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "KEY_A"),
    ("a picture: data:image/png;base64,iVBORw0KGgo= there", "a picture: DATA_A there"),
    ("maya\uff20example.org, maya@example.org", "EMAIL_A, EMAIL_A"),
    ("maya\ufe6bexample\uff0eorg", "EMAIL_A"),
    ("?to=maya%40example.org&n=1", "EMAIL_A&n=1"),
    ("maya%2540example.org", "EMAIL_A"),
    ("maya&#64;example.org or maya&#x40;example.org", "EMAIL_A or EMAIL_A"),
    (r'{"to": "maya\u0040example.org"}', '{"to": "EMAIL_A"}'),
    ("maya (at) example [dot] org", "EMAIL_A"),
    ("maya@\u0c89\u0ca6\u0cbe\u0cb9\u0cb0\u0ca3\u0cc6.\u0cad\u0cbe\u0cb0\u0ca4", "EMAIL_A"),
    ("ma\u200bya@exam\u200bple.org is maya@example.org", "EMAIL_A is EMAIL_A"),
    ("may\u200da@exam\u200cple.org", "EMAIL_A"),
    ("https://maya:hunter2%40example.org/x", "URL_A"),
    ("\uff14\uff11\uff11\uff11\uff0d\uff11\uff11\uff11\uff11 is 4111-1111", "NUMBER_A is NUMBER_A"),
    ("4111\u200b1111 is 4\u200d1\u200d1\u200d1\u200d1111", "NUMBER_A is NUMBER_A"),
    (
        "4\ufe0f\u20e31\ufe0f\u20e31\ufe0f\u20e31\ufe0f\u20e31\ufe0f\u20e31\ufe0f\u20e31\ufe0f\u20e3",
        "NUMBER_A\ufe0f\u20e3",
    ),
    ("4111 - 1111 - 1111", "NUMBER_A"),
    ("4111\u30001111 and 4111\u22121111 and 4111\u00ad1111", "NUMBER_A and NUMBER_A and NUMBER_A"),
    ("\U0001d7d2111\u20071111", "NUMBER_A"),
    ("sk-proj-abc\u200bDEFghiJKLmno1", "KEY_A"),
    ("pass\u2060word is hunter2x", "password is KEY_A"),
    ("40% off, 50%", "40% off, 50%"),
    (
        "\u0c95\u0ccd\u200c\u0cb7 and \U0001f468\u200d\U0001f469",
        "\u0c95\u0ccd\u200c\u0cb7 and \U0001f468\u200d\U0001f469",
    ),
    ("What is the weather in Mysuru?", "What is the weather in Mysuru?"),
    ("Look at this, not at that dot.", "Look at this, not at that dot."),
    ("a@b.org, c@d.org", "EMAIL_A, EMAIL_B"),
    ("\ud800 a@b.org", "\ufffd EMAIL_A"),
]


@pytest.mark.parametrize(("said", "kept"), CASES, ids=[said[:40] for said, _ in CASES])
def test_what_is_kept_of_a_text(said: str, kept: str) -> None:
    assert Redactor().text(said) == kept


def test_what_was_redacted_stays_as_it_is() -> None:
    redactor = Redactor()
    once = [redactor.text(said) for said, _ in CASES]
    assert [Redactor().text(text) for text in once] == once


def test_an_operators_pattern_goes_first_and_may_name_the_part() -> None:
    redactor = Redactor([compiled(r"(?i)customer (?P<v>[a-z]+)"), compiled("Mysuru")])
    assert redactor.text("Customer Maya in Mysuru") == "Customer REDACTED_A in REDACTED_B"


def test_the_arguments_of_a_call_agree_with_the_prompt() -> None:
    redactor = Redactor()
    assert redactor.text("mail maya@example.org or 98765 43210") == "mail EMAIL_A or NUMBER_A"
    given = '{"to": "maya@example.org", "phone": 9876543210, "n": 3, "password": "hunter2x"}'
    kept = {"to": "EMAIL_A", "phone": "NUMBER_A", "n": 3, "password": "KEY_A"}
    assert redactor.arguments(given) == kept
    for no_json in ('{"to": "', "[" * 50_000):
        assert redactor.arguments(f"{no_json}maya@example.org") == f"{no_json}EMAIL_A"


def test_a_tools_schema_stays_a_schema() -> None:
    tool = {"parameters": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99999999}}}}
    kept = {"parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    assert Redactor().value(tool, numbers_go=True) == kept


def test_of_a_turn_only_words_and_calls_are_kept() -> None:
    turn = {
        "role": "user",
        "content": [
            {"type": "text", "text": "who is a@b.org?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
        "reasoning_content": "secret",
        "anything": "else",
    }
    assert Redactor().message(turn) == {"role": "user", "content": "who is EMAIL_A?"}


def test_a_call_in_the_history_keeps_its_shape_and_its_id() -> None:
    redactor = Redactor()
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"to":"a@b.org"}'}}
    kept = redactor.message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert json.loads(kept["tool_calls"][0]["function"]["arguments"]) == {"to": "EMAIL_A"}
    answer = redactor.message({"role": "tool", "tool_call_id": "call_1", "content": "sent to a@b.org"})
    assert answer == {"role": "tool", "tool_call_id": "call_1", "content": "sent to EMAIL_A"}
    assert kept["tool_calls"][0]["id"] == answer["tool_call_id"]


# ------------------------------------------------------------------------------------- property

LONG = re.compile(r"\d{7}")
ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]]@[\w-]")
pieces = st.one_of(
    st.emails(),
    st.from_regex(r"\+?\d{7,19}", fullmatch=True),
    st.from_regex(r"\d{2,5}[ .-]\d{3,5}[ -]\d{3,5}", fullmatch=True),
    st.text(max_size=12),
    st.sampled_from(["2026-11-21", "password is ", "token=", "http://", "a@", "data:", "\u0661\u0662\u0663", "12345"]),
)  # fmt: skip
texts = st.lists(pieces, max_size=6).flatmap(lambda parts: st.sampled_from([" ", "", ", "]).map(lambda by: by.join(parts)))  # fmt: skip
values: Any = st.recursive(
    st.one_of(texts, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@pytest.mark.slow  # JSON of every form is drawn: 4 s
@settings(max_examples=60, deadline=None, derandomize=True)
@given(said=texts, arguments=values, shape=values, address=st.emails())
def test_no_long_number_and_no_address_is_in_what_is_written(
    said: str, arguments: Any, shape: Any, address: str
) -> None:
    functions = [{"name": "f", "arguments": json.dumps(arguments)}, {"name": said, "arguments": said}]
    calls = [{"id": "call", "type": "function", "function": function} for function in functions]
    body = {
        "messages": [
            {"role": "user", "content": f"{said} {address}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": said},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": shape}}],
        "stop": [said],
        "max_tokens": 99999999,
    }
    chat = record(id="abcdefgh", request=body)
    line = msgspec.json.encode(redacted(chat)).decode()
    for text in _texts(json.loads(line)):
        assert not LONG.search(text), text
        assert not ADDRESS.search(text), text
    assert address not in line


def _texts(value: Any) -> list[str]:
    """Every text, key and number of a JSON value."""
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else [str(value)]


# ------------------------------------------------------------------------------------------- bounds


def test_every_pattern_is_linear_by_construction() -> None:
    """RE2 never backtracks; a pattern of Python's `re` on a caller's text may."""
    assert {type(pattern.regex).__module__ for pattern in redact._patterns()} == {"re2"}
    assert not hasattr(redact, "re")


def test_a_text_beyond_the_limit_is_dropped_whole_and_counted() -> None:
    redactor = Redactor(characters=20)
    assert redactor.text("a@b.org is there") == "EMAIL_A is there"
    assert redactor.text("4111 1111") == DROPPED
    assert redactor.arguments('{"a": "4111 1111"}') == DROPPED
    assert redactor.dropped == 2


def test_a_value_nested_too_deep_is_dropped_there() -> None:
    deep: Any = "a@b.org"
    for _ in range(900):
        deep = {"a": [deep]}
    redactor = Redactor(depth=3)
    assert redactor.value(deep) == {"a": [{"a": DROPPED}]}
    assert redactor.dropped == 1


def test_more_secrets_than_are_looked_for_are_an_error() -> None:
    redactor = Redactor(secrets=2)
    with pytest.raises(TooManySecrets):
        redactor.text("password=aaaa password=bbbb password=cccc")
