"""What an engine is asked: everything pinned, in each engine's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.run.request import body_digest, build_body, encode_body
from gates.run.target import Dialect, Target, Variant
from tests.gates.run.parts import FUNCTION, SYSTEM, TOOL, case, target

COOL = Sampling(
    temperature=0.7, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1, seed=7, max_tokens=64
)
PLAIN = Sampling()


def body(
    what: Case | None = None,
    dialect: Dialect = "vllm",
    sampling: Sampling = PLAIN,
    mode: Any = "stream",
    **variant: Any,
) -> dict[str, Any]:
    where = target("http://127.0.0.1:1", dialect)
    return build_body(what or case("hello"), sampling, where, Variant(**variant), mode)


@pytest.mark.parametrize(
    "dialect, words",
    [
        ("vllm", {"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}),
        ("llama-server", {"top_k": 20, "min_p": 0.05, "repeat_penalty": 1.1}),
        ("sglang", {"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}),
    ],
)
def test_every_parameter_is_said_in_the_engines_words(dialect: Dialect, words: dict[str, float]) -> None:
    """Those that all engines call the same, and those that they do not."""
    common = {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    sent = body(dialect=dialect, sampling=COOL)

    assert sent.items() >= (common | words | {"seed": 7, "max_tokens": 64}).items()


def test_all_tokens_is_minus_one_for_vllm_and_nought_for_llama_server() -> None:
    """-1 means a count of one less than none to nobody."""
    assert body(dialect="vllm")["top_k"] == -1
    assert body(dialect="llama-server")["top_k"] == 0


def test_llama_servers_other_samplers_are_off_whatever_its_command_line_says() -> None:
    """vLLM has none of them."""
    sent = body(dialect="llama-server")

    assert (sent["typical_p"], sent["xtc_probability"], sent["dry_multiplier"], sent["mirostat"]) == (
        1,
        0,
        0,
        0,
    )


def test_an_openai_engine_is_sent_no_word_that_it_does_not_know() -> None:
    """It answers 400 to any other; the neutral values need no word."""
    assert set(body(dialect="openai")) == {
        "model", "messages", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed",
        "max_tokens", "stream", "stream_options",
    }  # fmt: skip


@pytest.mark.parametrize("field", ["top_k", "min_p", "repetition_penalty"])
def test_an_openai_engine_cannot_be_asked_what_it_has_no_word_for(field: str) -> None:
    """Dropping it would compare samplers."""
    with pytest.raises(RunError, match=field):
        body(dialect="openai", sampling=Sampling(**{field: 2}))


@pytest.mark.parametrize("dialect", ["vllm", "llama-server", "sglang"])
@pytest.mark.parametrize("thinking", [False, True])
def test_thinking_is_switched_by_a_json_boolean(dialect: Dialect, thinking: bool) -> None:
    """vLLM takes "false" and 0 for on."""
    switch = body(dialect=dialect, thinking=thinking)["chat_template_kwargs"]["enable_thinking"]

    assert switch is thinking


def test_a_stream_asks_for_its_usage_and_a_whole_reply_has_it() -> None:
    """`stream_options` without a stream is an error to vLLM."""
    assert body()["stream_options"] == {"include_usage": True}
    assert body(mode="whole")["stream"] is False and "stream_options" not in body(mode="whole")


def test_tools_go_out_with_their_choice_and_the_control_takes_both_away() -> None:
    """vLLM answers 400 to an empty list, so that the key itself has to go."""
    what = case("find", tools=True, tool_choice="required")

    assert (body(what)["tools"], body(what)["tool_choice"]) == ([TOOL], "required")
    assert not {"tools", "tool_choice"} & body(what, tools=False).keys()
    assert not {"tools", "tool_choice"} & body(case("hello")).keys()


def test_a_suffix_stands_behind_the_system_prompt() -> None:
    """Or makes one where the case has none; the case itself stays as it was."""
    bare = Case("hi", (), ({"role": "user", "content": "Hi"},))
    suffix = "Use bullet points."

    assert body(system_suffix=suffix)["messages"][0]["content"] == f"You are Annie.\n\n{suffix}"
    assert body(bare, system_suffix=suffix)["messages"][0] == {"role": "system", "content": suffix}
    assert SYSTEM["content"] == "You are Annie."


def test_further_fields_are_added_and_replace_nothing() -> None:
    """The gate pins what it pins."""
    assert body(extra={"cache_salt": "x"})["cache_salt"] == "x"
    with pytest.raises(RunError, match="max_tokens, seed"):
        body(extra={"seed": 1, "max_tokens": 1, "user": "me"})


def test_the_digest_is_over_the_bytes_that_go_out_and_survives_json() -> None:
    """A body that was read back from the ledger has the digest in its key."""
    sent = body(case("ನಮಸ್ಕಾರ", tools=True), sampling=COOL)

    assert (
        body_digest(json.loads(encode_body(sent)))
        == body_digest(json.loads(json.dumps(sent)))
        == body_digest(sent)
    )


def test_the_order_of_a_tools_keys_is_part_of_the_request() -> None:
    """A chat template prints them in it, and the model reads another prompt."""
    turned = {"type": "function", "function": dict(reversed(FUNCTION.items()))}

    assert body_digest({"tools": [TOOL]}) != body_digest({"tools": [turned]})


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://me:key@host"])
def test_a_target_has_an_address_and_no_password_in_it(url: str) -> None:
    """A password in an address ends up in messages."""
    with pytest.raises(RunError) as caught:
        target(url)
    assert "key" not in str(caught.value).replace("give the key by header", "")


def test_a_target_does_not_show_its_headers() -> None:
    """They hold a key."""
    shown = Target(
        url="http://h",
        served_model="m",
        dialect="vllm",
        artefact="a",
        engine="e",
        headers={"authorization": "sk-1"},
    )
    assert "sk-1" not in repr(shown)
