"""Suites in one file, and the policy that is derived from one."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gates.contracts.case import Case
from gates.contracts.errors import SuiteError
from gates.detect.checks import LANGUAGES, find_failed_checks, language_identifier
from gates.policy.load import LEAST, derive, policy_for, policy_problems
from gates.suite.load import load_suite

TIMER = "{name: set_timer, parameters: {type: object, properties: {minutes: {type: integer}}}}"

JUDGE = "{url: 'http://127.0.0.1:9/v1', model: m}"


def cases(tmp_path: Path, text: str, name: str = "own.yaml") -> tuple[Case, ...]:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return load_suite(path).cases


def test_a_prompt_and_its_checks_become_a_case(tmp_path: Path) -> None:
    (case,) = cases(tmp_path, "- {prompt: Hi, contains: hello, regex: 'l+', max_sentences: 2}")
    assert case.messages == ({"role": "user", "content": "Hi"},)
    assert case.gates == ("leak", "raw_call", "empty", "checks")
    assert case.expect == {"checks": {"contains": ["hello"], "regex": "l+", "max_sentences": 2}}


def test_calls_are_compared_by_the_gate_of_tools(tmp_path: Path) -> None:
    text = f"{{tools: [{TIMER}], prompts: [{{prompt: A, calls: {{name: set_timer, arguments: {{minutes: 10}}}}}}, {{prompt: B, no_call: true}}]}}"
    one, two = cases(tmp_path, text)
    assert one.expect == {"calls": [{"name": "set_timer", "arguments": {"minutes": [10]}}]}
    assert two.expect == {"calls": []} and "tools" in one.gates and "tools" in two.gates


def test_the_source_of_a_function_is_part_of_the_digest_and_does_not_run(tmp_path: Path) -> None:
    digests = set()
    for code in ("def f(prompt, reply): ...", "raise SystemExit\ndef f(prompt, reply): ..."):
        (tmp_path / "own.py").write_text(code)
        cases(tmp_path, "- {prompt: A, python: own.py:f}")
        digests.add(load_suite(tmp_path / "own.yaml").digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("labels", "tier"), [("", "advisory"), ("labels: [{reply: a, good: true}]", "supporting")]
)
def test_a_judge_decides_only_with_labelled_replies_and_never_alone(
    tmp_path: Path, labels: str, tier: str
) -> None:
    text = f"{{judge: {JUDGE}, prompts: [{{prompt: A, contains: b, judge: {{rubric: Kind., {labels}}}}}]}}"
    cases(tmp_path, text)
    suite = load_suite(tmp_path / "own.yaml")
    policy = derive(suite)
    assert policy.gates["judge"].tier == tier and list(policy_problems(policy, suite)) == []
    alone = replace(policy, gates={"judge": replace(policy.gates["judge"], tier="critical")})
    assert "only critical gate" in next(policy_problems(alone, suite))


@pytest.mark.parametrize(
    ("reply", "language", "found"),
    [
        ("Bonjour, comment allez-vous aujourd'hui?", "en", "fr, not en"),
        ("Bonjour, comment allez-vous aujourd'hui?", "fr", ""),
        ("ನಮಸ್ಕಾರ, ನಾನು ಚೆನ್ನಾಗಿದ್ದೇನೆ.", "en", "kn, not en"),
        ("42.", "kn", ""),  # too short to tell
        ("", "en", ""),
    ],
)
def test_a_reply_in_another_language_is_found(reply: str, language: str, found: str) -> None:
    assert "".join(one.excerpt[:10] for one in find_failed_checks(reply, {"language": language})) == found


def test_jsonl_has_a_prompt_in_each_line(tmp_path: Path) -> None:
    one, two = cases(
        tmp_path,
        '{"prompt": "A"}\n\n{"turns": [{"user": "B"}, {"assistant": "C"}, {"user": "D"}]}\n',
        "own.jsonl",
    )
    assert [case.id for case in (one, two)] == ["prompt-001", "prompt-002"]
    assert [message["role"] for message in two.messages] == ["user", "assistant", "user"]


def test_plain_words_of_yaml_are_texts(tmp_path: Path) -> None:
    words = ["no", "12:30", "2026-01-01", "y", "0x1f"]
    (case,) = cases(tmp_path, f"- {{prompt: Hi, contains: [{', '.join(words)}]}}")
    assert case.expect["checks"]["contains"] == words


def test_the_languages_are_those_that_can_be_told() -> None:
    assert LANGUAGES.split() == sorted(language_identifier().labels)


def test_the_package_that_tells_languages_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    (tmp_path / "own.yaml").write_text("- {prompt: A, language: en}", "utf-8")
    with pytest.raises(SuiteError, match=r"language: needs py3langid: pip install"):
        load_suite(tmp_path / "own.yaml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no prompt"),
        ("[]", "has no prompt"),
        ("- {}", "prompts[0]: must have a prompt, or turns"),
        ("- {prompt: A, turns: [{user: B}]}", "prompts[0]: must have a prompt, or turns"),
        ("- {prompt: A, contain: B}", "prompts[0]: contain: unknown key; did you mean 'contains'?"),
        ("- {prompt: A, max_sentences: 0}", "prompts[0]: max_sentences: must be a whole number of at least 1"),
        ("- {prompt: A, regex: '['}", "'[' is not a valid pattern of RE2: missing ]: ["),
        ("- {turns: [{system: A}, {user: B}]}", "turns: must each be"),
        ("- {prompt: A, python: good.py}", "python: good.py defines no function ''"),
        ("- {prompt: A, json_schema: {type: lost}}", "json_schema"),
        ("- {prompt: A, language: xx}", "language: 'xx' is none of the languages that can be told: ace af"),
        ("- {prompt: A, python: none.py:f}", "python: must be FILE.py:FUNCTION; none.py: [Errno 2]"),
        ("- {prompt: A, python: odd.py:f}", "python: must be FILE.py:FUNCTION; odd.py: "),
        ("- {prompt: A, python: good.py:polit}", "python: good.py defines no function 'polit'; did you mean 'polite'?"),
        ("- {prompt: A, contains: b, judge: Kind.}", "prompts[0]: judge.url: is missing"),
        ("{judge: {url: localhost, model: m}, prompts: [{prompt: A, contains: b, judge: Kind.}]}", "judge.url: must be"),
        (f"{{judge: {JUDGE}, prompts: [{{prompt: A, judge: Kind.}}]}}", "judge is its only check"),
        (f"{{judge: {JUDGE}, prompts: [{{prompt: A, contains: b, judge: {{rubric: Kind., compare: true, labels: [{{reply: a, good: true}}]}}}}]}}", "labels: must each have an `other`"),
        ("- {prompt: A, calls: {name: f}}", "tools: are missing"),
        ("- {prompt: A, contains: []}", "prompts[0]: contains: must be"),
        ("- {prompt: A, calls: {name: f}, no_call: true}", "no_call: contradicts calls"),
        ("- {turns: [{user: A, assistant: B}]}", "turns: must each be"),
        ("- {turns: [{user: A}, {assistant: B}]}", "prompts[0]: turns: must have a system prompt at first"),
        ("- {turns: [{robot: A}]}", "turns"),
        ("- {prompt: A}\n- {prompt: a.}", "say the same"),
        ("- {prompt: A, id: x}\n- {prompt: B, id: x}", "two cases have the id"),
        ("- {prompt: A, prompt: B}", ":1: not YAML (the key 'prompt' is repeated"),
        ("- {1: A}", "not YAML"),
        ("- prompt: [", ":1: not YAML"),
        ("- !!python/object/apply:os.system [ls]", "not YAML"),
        ("{prompts: [{prompt: A}], sampling: {temperature: 3}}", "sampling.temperature: must be a number of at least 0 and at most 2"),
        ("{prompts: [{prompt: A}], sampling: {temp: 0}}", "sampling.temp"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_that_names_its_place(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "odd.py").write_text("def f(:")
    (tmp_path / "good.py").write_text("def polite(prompt, reply): ...")
    with pytest.raises(SuiteError) as refused:
        cases(tmp_path, text)
    said = str(refused.value)
    assert said.startswith(str(tmp_path / "own.yaml")) and why in said and "\n" not in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("none.yaml", "none.jsonl"):
        with pytest.raises(SuiteError, match="cannot be read"):
            load_suite(tmp_path / name)
    (tmp_path / "odd.yaml").write_bytes(b"- {prompt: \xff}")
    with pytest.raises(SuiteError, match="is not UTF-8"):
        load_suite(tmp_path / "odd.yaml")


@pytest.mark.parametrize("count", [1, LEAST - 1, LEAST, 10, 30, 100])
def test_a_derived_policy_can_always_decide(tmp_path: Path, count: int) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("\n".join(f"- {{prompt: Question {i}, contains: x}}" for i in range(count)))
    suite = load_suite(path)
    policy = policy_for("derived", suite)
    assert list(policy_problems(policy, suite)) == []
    assert policy.gates["leak"].zero is not None
    checks = policy.gates["checks"]
    assert (checks.compare is None) == (count < LEAST)
    if checks.compare:
        assert checks.compare.margin == {3: 0.5, 10: 0.25, 30: 0.15, 100: 0.1}[count]
