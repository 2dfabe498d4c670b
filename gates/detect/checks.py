"""Checks a reply against what the author of a suite wants of it: words, a pattern, a JSON schema, sentences, a language. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import re2
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from gates.contracts.errors import SuiteError
from gates.detect.detection import Detection, detection, excerpt
from gates.reply.reply import SENTENCE_END

SURE: Final = 0.5
"""From this probability on, the language that is found counts; short replies and lists of figures have none."""
NO_LANGUAGE: Final = "zxx"
LANGUAGES: Final = (
    "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr fuv fy ga gcf gcr gd gl gom grc gu gug "
    "guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc "
    "om or pa pcm pl ps pt qu ro ru rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo yue zh zu "
    "zxx"
)
"""Those of py3langid; written down, because loading its model takes a second."""
MOST_CHARACTERS: Final = 4000
"""Of a reply, to find its language."""


def find_failed_checks(text: str, checks: Mapping[str, Any]) -> list[Detection]:
    """Kinds: contains (in any case), regex (RE2, anywhere), json_schema (of the whole reply), max_sentences, language (ISO 639). A check
    by the author's own function is left out: `gates.run.rulings` asks it.
    """
    return [
        finding for name, find in _CHECKS.items() if name in checks for finding in find(text, checks[name])
    ]


@cache
def language_identifier() -> Any:
    """py3langid's, with probabilities; loaded with the first reply that is judged by its language."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _contains(text: str, wanted: Sequence[str]) -> Iterator[Detection]:
    folded = text.casefold()
    for words in wanted:
        if words.casefold() not in folded:
            yield Detection("checks", "contains", 0, len(text), excerpt(f"{words} is not in: {text}"))


def _regex(text: str, pattern: str) -> Iterator[Detection]:
    if re2.search(pattern, text) is None:
        yield Detection("checks", "regex", 0, len(text), excerpt(text))


def _json_schema(text: str, schema: Mapping[str, Any]) -> Iterator[Detection]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as why:
        yield Detection("checks", "json_schema", 0, len(text), excerpt(f"not JSON ({why}): {text}"))
        return
    try:
        for error in Draft202012Validator(schema, registry=Registry()).iter_errors(value):
            yield Detection("checks", "json_schema", 0, len(text), excerpt(error.message))
    except Unresolvable as missing:
        raise SuiteError(f"json_schema refers to {missing.ref}, which is not there") from None


def _max_sentences(text: str, most: int) -> Iterator[Detection]:
    ends = [found.end() for found in SENTENCE_END.finditer(f"{text.strip()} ")]
    if len(ends) > most:
        yield detection("checks", "max_sentences", text.strip(), ends[most - 1], len(text.strip()))


def _language(text: str, wanted: str) -> Iterator[Detection]:
    found, chance = language_identifier().classify(text[:MOST_CHARACTERS])
    if chance >= SURE and found not in (wanted, NO_LANGUAGE):
        yield Detection("checks", "language", 0, len(text), excerpt(f"{found}, not {wanted}: {text}"))


_CHECKS: Final[Mapping[str, Callable[[str, Any], Iterator[Detection]]]] = {
    "contains": _contains,
    "regex": _regex,
    "json_schema": _json_schema,
    "max_sentences": _max_sentences,
    "language": _language,
}
