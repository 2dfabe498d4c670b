"""What may be kept of a conversation: addresses, numbers and keys are taken out of it. Pure.

One `Redactor` a conversation: the same value becomes the same placeholder wherever it stands, so that a
call's arguments still agree with the prompt. E-mail addresses, telephone and card numbers (any seven
digits in a row, also with spaces, dots, dashes or brackets between them), IP addresses, addresses of
the web that hold a key or a password, tokens, keys and passwords are known by their looks. A name or a
street is not: patterns of the operator's own take those out. Dates stay.

Placeholders hold no digit and no "@", so none is taken for something to redact, nor makes a number
with the digits beside it.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

_DATE = (
    r"(?<!\d)(?:(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"|\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d)(?!\d)"
)
_DIGITS = r"\+?\(?\d(?:[ \t\u00a0\u2009\u202f().\-\u2010-\u2013/]{0,2}\d){6,}"
_SECRET_NAMES = r"api[_-]?key|access[_-]?key|client[_-]?secret|secret|token|password|passwd|pwd|passphrase"

_Needle = Callable[[str], bool]


def _any(_: str) -> bool:
    return True


def _has(needle: str) -> _Needle:
    return lambda text: needle in text


_PATTERNS: Final[tuple[tuple[str, _Needle, re.Pattern[str]], ...]] = tuple(
    (kind, needle, re.compile(pattern))
    for kind, needle, pattern in (
        ("DATA", _has("data:"), r"data:[\w.+-]{1,64}/[\w.+-]{1,64}(?:;[\w=.+-]{1,64}){0,4},[^\s\"'<>)]*"),
        ("URL", _has("://"), r"(?i)[a-z][a-z0-9+.-]{1,20}://[^\s/@]{1,256}@[^\s\"'<>]*"),
        (
            "URL",
            _has("://"),
            r"(?i)[a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>]{1,2048}\?[^\s\"'<>]{0,2048}?"
            rf"(?:{_SECRET_NAMES}|key|sig|signature|auth|code)=[^\s\"'<>]*",
        ),
        ("KEY", _has("-----BEGIN"), r"-----BEGIN [A-Z ]{3,40}-----[^-]{1,16384}(?:-----END [A-Z ]{3,40}-----)?"),
        ("KEY", _any, r"\beyJ[\w-]{8,4096}\.[\w-]{4,8192}(?:\.[\w-]{0,4096})?"),
        ("KEY", _any, r"(?i)\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?(?P<v>(?:(?:basic|bearer|token)[ \t]+)?[^\s\"',]{4,4096})"),
        ("KEY", _any, r"(?i)\bbearer[ \t]+(?P<v>(?=\S{0,4096}\d|\S{20})[\w.~+/=-]{6,4096})"),
        ("KEY", _any, r"\b(?:sk|pk|rk|hf|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs])[-_][\w-]{12,512}"),
        ("KEY", _has("A"), r"\b(?:AKIA|ASIA|AIza)[\w-]{12,128}"),
        ("KEY", _any, rf"(?i)\b(?:{_SECRET_NAMES})[\"']?[ \t]*[:=][ \t]*[\"']?(?P<v>[^\s\"',;]{{3,4096}})"),
        ("KEY", _any, r"(?i)\b(?:password|passcode|passphrase|pin(?: code)?) is[ \t]+[\"']?(?P<v>[^\s\"',;]{3,256})"),
        ("ID", _has("-"), r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
        ("KEY", _any, r"(?i)\b(?=[a-z]{0,64}\d)[0-9a-f]{32,4096}\b"),
        ("EMAIL", _has("@"), r"(?:\"[^\"\s]{1,64}\"|[^\s@<>,;:\"()\[\]]{1,64})(?:@[\w-]{1,63}(?:\.[\w-]{1,63})*)+"),
        ("EMAIL", _has(" at "), r"(?i)\b[\w.+-]{1,64}(?: dot [\w-]{1,63}){0,3} at [\w-]{1,63}(?: dot [\w-]{1,63})+"),
        ("IP", _has("."), r"(?<!\d)(?:\d{1,3}\.){3}\d{1,3}(?!\d)"),
        ("IP", _has(":"), r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.\d{1,3}){3})?(?![\w:])"),
        ("NUMBER", _any, rf"(?:{_DATE})|(?P<v>{_DIGITS})"),
    )
)  # fmt: skip
"""Kind, what must stand in a text for the pattern to be tried, and the pattern: all of it goes, or its group v.

Every repetition is bounded, so that no text takes long. The order counts: what is part of something
longer comes behind it.
"""

_SECRET_FIELD = re.compile(rf"(?i){_SECRET_NAMES}|passcode|pin|authorization")
_PLACEHOLDER = re.compile(r"[A-Z]{2,8}_[A-Z]{1,4}")
_SHORTEST_SECRET = 4  # characters; a shorter one would be found in too many words

_ROLES = ("role", "type")
"""Fields of a message whose values are words of the API."""


class Redactor:
    """For one conversation. `own` are patterns that are looked for first."""

    def __init__(self, own: Iterable[re.Pattern[str]] = ()) -> None:
        self._patterns = (*(("REDACTED", _any, pattern) for pattern in own), *_PATTERNS)
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._secrets: dict[str, str] = {}  # known by what stood before them; elsewhere nothing does

    def text(self, text: str) -> str:
        """A text without what must not be kept."""
        text = self._without_secrets(text)
        for kind, needle, pattern in self._patterns:
            if needle(text):
                text = pattern.sub(lambda found, kind=kind: self._replaced(kind, found), text)  # type: ignore[misc]
        return self._without_secrets(text)

    def value(self, value: Any) -> Any:
        """A JSON value, keys too. A number of which something was taken becomes the placeholder's text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._under(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, bool) or value is None:
            return value
        told = self.text(str(value))
        return value if told == str(value) else told

    def schema(self, value: Any) -> Any:
        """Tools and formats: as `value`, but a number of which something is taken is left out, for a text
        in its place would be no schema."""
        if isinstance(value, dict):
            return {self.text(key): self.schema(item) for key, item in value.items() if self._may_stay(item)}
        if isinstance(value, list | tuple):
            return [self.schema(item) for item in value if self._may_stay(item)]
        return self.value(value)

    def arguments(self, text: str) -> Any:
        """A call's arguments as a JSON value; as text, where they are no JSON."""
        try:
            return self.value(json.loads(text))
        except (ValueError, RecursionError):
            return self.text(text)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """One turn: what was said, by whom, and which calls were made. Pictures and thoughts are dropped."""
        kept: dict[str, Any] = {key: message[key] for key in _ROLES if key in message}
        content = message.get("content")
        if isinstance(content, list):
            texts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
            content = "".join(str(part.get("text", "")) for part in texts)
        if content is not None:
            kept["content"] = self.text(str(content))
        for key in ("name", "tool_call_id"):
            if message.get(key) is not None:
                kept[key] = self.text(str(message[key]))
        if message.get("tool_calls"):
            kept["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        return kept

    def _call(self, call: dict[str, Any]) -> Any:
        function = call.get("function")
        if not isinstance(function, dict):
            return self.value(call)
        arguments = function.get("arguments")
        told = self.arguments(arguments) if isinstance(arguments, str) else self.value(arguments)
        text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
        about = self.value({key: item for key, item in function.items() if key != "arguments"})
        rest = self.value({key: item for key, item in call.items() if key != "function"})
        return {**rest, "function": {**about, "arguments": text}}

    def _without_secrets(self, text: str) -> str:
        for secret, placeholder in self._secrets.items():
            text = text.replace(secret, placeholder)
        return text

    def _under(self, key: str, item: Any) -> Any:
        """The value of a field, whose name may say that it is a secret."""
        if isinstance(item, str) and item and _SECRET_FIELD.fullmatch(key):
            return self._placeholder("KEY", item)
        return self.value(item)

    def _may_stay(self, item: Any) -> bool:
        number = isinstance(item, int | float) and not isinstance(item, bool)
        return not number or self.value(item) == item

    def _replaced(self, kind: str, found: re.Match[str]) -> str:
        whole = found[0]
        if "v" not in found.re.groupindex:
            return self._placeholder(kind, whole)
        value = found["v"]
        if value is None:  # a date; of an operator's pattern all that it found
            return whole if kind == "NUMBER" else self._placeholder(kind, whole)
        return whole.replace(value, self._placeholder(kind, value))

    def _placeholder(self, kind: str, value: str) -> str:
        if kind == "IP" and ":" in value and not _is_ipv6(value):
            return value
        if _PLACEHOLDER.fullmatch(value):
            return value
        key = kind, _normal(kind, value)
        if key not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[key] = f"{kind}_{_letters(self._counts[kind])}"
            if kind == "KEY" and len(value) >= _SHORTEST_SECRET:
                self._secrets[value] = self._known[key]
        return self._known[key]


def _normal(kind: str, value: str) -> str:
    """What two ways of writing one value have in common."""
    if kind == "NUMBER":
        return "".join(str(int(char)) for char in value if char.isdecimal())
    return value.lower() if kind == "EMAIL" else value


def _letters(count: int) -> str:
    """1 is A, 26 Z, 27 AA."""
    letters = ""
    while count:
        count, rest = divmod(count - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False
