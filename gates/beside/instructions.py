"""Instructions that a program can check, by the ids and arguments of IFEval: `broken`. Pure.

The instructions and their ids are those of Zhou et al. (2023), arXiv 2311.07911; the implementation is our own. It
differs from theirs where theirs needs a library or a pattern from the data: words of the data are taken literally and not
as regular expressions; sentences are split at marks that end them; a language is recognized by its script, or by its
commonest words (`gates.beside.language`); text in English letters counts as English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gates.beside.language import speaks

MAX_CHARACTERS: Final = 100_000
"""A longer reply counts as following no instruction; checking it would take too long."""

_WORD: Final = re.compile(r"\w+")
_SENTENCE: Final = re.compile(r"[^.!?।。!?\s][^.!?।。!?]*")
_PLACEHOLDER: Final = re.compile(r"\[[^\[\]\n]*\]")
_BULLET: Final = re.compile(r"^[ \t]*(?:\*(?!\*)|-)[ \t]*\S", re.MULTILINE)
_HIGHLIGHT: Final = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")
_TITLE: Final = re.compile(r"<<([^\n<>]+)>>")
_FENCE: Final = re.compile(r"\A```(?:json)?\s*(.*?)\s*(?:```)?\Z", re.IGNORECASE | re.DOTALL)
OPTIONS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

Check = Callable[[str, Mapping[str, Any]], bool]


def broken(reply: str, instructions: Sequence[str], arguments: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the instructions that a reply does not follow. An empty reply follows none."""
    if not reply.strip() or len(reply) > MAX_CHARACTERS:
        return list(instructions)
    pairs = zip(instructions, arguments, strict=True)
    return [name for name, given in pairs if not CHECKS[name][0](reply, given)]


def problem(name: str, given: Mapping[str, Any]) -> str | None:
    """Why an instruction cannot be checked; None if it can."""
    if name not in CHECKS:
        return f"{name!r} is no instruction that is known here"
    for key, kind in CHECKS[name][1].items():
        value = given.get(key)
        if kind is list and not (
            isinstance(value, list) and value and all(isinstance(v, str) for v in value)
        ):
            return f"{name} needs {key}, a list of texts"
        if kind is not list and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"{name} needs {key}, {'a whole number' if kind is int else 'a text'}"
        if key.endswith("relation") and value not in RELATIONS:
            return f"{name}: {key} is {value!r:.40}, not one of {', '.join(RELATIONS)}"
    if name == "language:response_language" and speaks("", given["language"]) is None:
        return f"the language {given['language']!r:.20} is not recognized here"
    return None


RELATIONS: Final = ("less than", "at least")


def _compare(count: int, relation: str, limit: int) -> bool:
    return count < limit if relation == "less than" else count >= limit


# ------------------------------------------------------------------------------------------- counting


def _words(reply: str, given: Mapping[str, Any]) -> bool:
    return _compare(len(_WORD.findall(reply)), given["relation"], given["num_words"])


def _sentences(reply: str, given: Mapping[str, Any]) -> bool:
    return _compare(len(_SENTENCE.findall(reply)), given["relation"], given["num_sentences"])


def _parts(reply: str, mark: str) -> list[str] | None:
    """The parts between marks, without an empty one at either end; None if one inside is empty."""
    parts = [part.strip() for part in reply.strip().split(mark)]
    inner = parts[1:-1]
    return None if not all(inner) else [part for part in parts if part]


def _paragraphs(reply: str, given: Mapping[str, Any]) -> bool:
    parts = _parts(reply, "***")
    return parts is not None and len(parts) == given["num_paragraphs"]


def _nth_paragraph(reply: str, given: Mapping[str, Any]) -> bool:
    parts = [part for part in re.split(r"\n[ \t]*\n", reply) if part.strip()]
    place = given["nth_paragraph"]
    if len(parts) != given["num_paragraphs"] or not 0 < place <= len(parts):
        return False
    first = _WORD.search(parts[place - 1])
    return first is not None and first.group().casefold() == given["first_word"].casefold()


# ------------------------------------------------------------------------------------------- keywords


def _times(reply: str, word: str) -> int:
    return reply.casefold().count(word.strip().casefold())


def _existence(reply: str, given: Mapping[str, Any]) -> bool:
    return all(_times(reply, word) for word in given["keywords"])


def _frequency(reply: str, given: Mapping[str, Any]) -> bool:
    return _compare(_times(reply, given["keyword"]), given["relation"], given["frequency"])


def _forbidden(reply: str, given: Mapping[str, Any]) -> bool:
    """None of them occurs as a separate word."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", reply, re.IGNORECASE)
        for word in given["forbidden_words"]
    )


def _letters(reply: str, given: Mapping[str, Any]) -> bool:
    count = reply.casefold().count(given["letter"].casefold())
    return _compare(count, given["let_relation"], given["let_frequency"])


# --------------------------------------------------------------------------------------------- content


def _placeholders(reply: str, given: Mapping[str, Any]) -> bool:
    return bool(len(_PLACEHOLDER.findall(reply)) >= given["num_placeholders"])


def _postscript(reply: str, given: Mapping[str, Any]) -> bool:
    """With any spaces between its letters."""
    letters = [re.escape(part) for part in re.findall(r"\w|[^\w\s]", given["postscript_marker"])]
    return re.search(r"\s?".join(letters), reply, re.IGNORECASE) is not None


def _bullets(reply: str, given: Mapping[str, Any]) -> bool:
    return bool(len(_BULLET.findall(reply)) == given["num_bullets"])


def _highlights(reply: str, given: Mapping[str, Any]) -> bool:
    found = [bold or plain for bold, plain in _HIGHLIGHT.findall(reply)]
    return bool(sum(bool(text.strip()) for text in found) >= given["num_highlights"])


def _sections(reply: str, given: Mapping[str, Any]) -> bool:
    mark = re.compile(rf"{re.escape(given['section_spliter'].strip())}\s?\d+")
    return bool(len(mark.findall(reply)) >= given["num_sections"])


def _json(reply: str, given: Mapping[str, Any]) -> bool:
    fenced = _FENCE.match(reply.strip())
    try:
        json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        return False
    return True


def _title(reply: str, given: Mapping[str, Any]) -> bool:
    return any(title.strip() for title in _TITLE.findall(reply))


def _constrained(reply: str, given: Mapping[str, Any]) -> bool:
    return any(option in reply for option in OPTIONS)


# ------------------------------------------------------------------------------------- the whole of it


def _two_responses(reply: str, given: Mapping[str, Any]) -> bool:
    parts = _parts(reply, "******")
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _repeat(reply: str, given: Mapping[str, Any]) -> bool:
    return reply.strip().casefold().startswith(given["prompt_to_repeat"].strip().casefold())


def _end(reply: str, given: Mapping[str, Any]) -> bool:
    return reply.strip().strip('"').casefold().endswith(given["end_phrase"].strip().casefold())


def _quotation(reply: str, given: Mapping[str, Any]) -> bool:
    text = reply.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def _capital_words(reply: str, given: Mapping[str, Any]) -> bool:
    capital = sum(word.isupper() for word in _WORD.findall(reply))
    return _compare(capital, given["capital_relation"], given["capital_frequency"])


def _capital(reply: str, given: Mapping[str, Any]) -> bool:
    return reply.isupper() and bool(speaks(reply, "en"))


def _lowercase(reply: str, given: Mapping[str, Any]) -> bool:
    return reply.islower() and bool(speaks(reply, "en"))


def _language(reply: str, given: Mapping[str, Any]) -> bool:
    return bool(speaks(reply, given["language"]))


CHECKS: Final[Mapping[str, tuple[Check, Mapping[str, type]]]] = {
    "keywords:existence": (_existence, {"keywords": list}),
    "keywords:frequency": (_frequency, {"keyword": str, "relation": str, "frequency": int}),
    "keywords:forbidden_words": (_forbidden, {"forbidden_words": list}),
    "keywords:letter_frequency": (_letters, {"letter": str, "let_relation": str, "let_frequency": int}),
    "language:response_language": (_language, {"language": str}),
    "length_constraints:number_sentences": (_sentences, {"relation": str, "num_sentences": int}),
    "length_constraints:number_paragraphs": (_paragraphs, {"num_paragraphs": int}),
    "length_constraints:number_words": (_words, {"relation": str, "num_words": int}),
    "length_constraints:nth_paragraph_first_word": (
        _nth_paragraph, {"num_paragraphs": int, "nth_paragraph": int, "first_word": str},
    ),
    "detectable_content:number_placeholders": (_placeholders, {"num_placeholders": int}),
    "detectable_content:postscript": (_postscript, {"postscript_marker": str}),
    "detectable_format:number_bullet_lists": (_bullets, {"num_bullets": int}),
    "detectable_format:constrained_response": (_constrained, {}),
    "detectable_format:number_highlighted_sections": (_highlights, {"num_highlights": int}),
    "detectable_format:multiple_sections": (_sections, {"section_spliter": str, "num_sections": int}),
    "detectable_format:json_format": (_json, {}),
    "detectable_format:title": (_title, {}),
    "combination:two_responses": (_two_responses, {}),
    "combination:repeat_prompt": (_repeat, {"prompt_to_repeat": str}),
    "startend:end_checker": (_end, {"end_phrase": str}),
    "startend:quotation": (_quotation, {}),
    "change_case:capital_word_frequency": (
        _capital_words, {"capital_relation": str, "capital_frequency": int},
    ),
    "change_case:english_capital": (_capital, {}),
    "change_case:english_lowercase": (_lowercase, {}),
    "punctuation:no_comma": (lambda reply, given: "," not in reply and "，" not in reply, {}),
}  # fmt: skip
"""An instruction's id to its check, and the arguments that it needs."""
