"""What an engine is asked: everything pinned, in each engine's own words."""

import json
from typing import Any

import pytest

from gates.contracts.case import Case, Sampling
from gates.contracts.dialect import Dialect
from gates.contracts.errors import RunError
from gates.run.request import body_digest, build_body, encode_body
from gates.run.target import Variant
from tests.gates.run.parts import TOOL, case, target

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
    common = {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    sent = body(dialect=dialect, sampling=COOL)

    assert sent.items() >= (common | words | {"seed": 7, "max_tokens": 64}).items()


@pytest.mark.parametrize("field", ["top_k", "min_p", "repetition_penalty"])
def test_an_openai_engine_cannot_be_asked_what_it_has_no_word_for(field: str) -> None:
    with pytest.raises(RunError, match=field):
        body(dialect="openai", sampling=Sampling(**{field: 2}))


@pytest.mark.parametrize("dialect", ["vllm", "llama-server", "sglang"])
@pytest.mark.parametrize("thinking", [False, True])
def test_thinking_is_switched_by_a_json_boolean(dialect: Dialect, thinking: bool) -> None:
    switch = body(dialect=dialect, thinking=thinking)["chat_template_kwargs"]["enable_thinking"]

    assert switch is thinking


def test_tools_go_out_with_their_choice_and_the_control_takes_both_away() -> None:
    what = case("find", tools=True, tool_choice="required")

    assert (body(what)["tools"], body(what)["tool_choice"]) == ([TOOL], "required")
    assert not {"tools", "tool_choice"} & body(what, tools=False).keys()
    assert not {"tools", "tool_choice"} & body(case("hello")).keys()


def test_the_digest_is_over_the_bytes_that_go_out_and_survives_json() -> None:
    sent = body(case("ನಮಸ್ಕಾರ", tools=True), sampling=COOL)

    assert (
        body_digest(json.loads(encode_body(sent)))
        == body_digest(json.loads(json.dumps(sent)))
        == body_digest(sent)
    )


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://me:key@host"])
def test_a_target_has_an_address_and_no_password_in_it(url: str) -> None:
    with pytest.raises(RunError) as caught:
        target(url)
    assert "key" not in str(caught.value).replace("give the key by header", "")
