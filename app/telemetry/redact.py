"""Redacts a conversation before it is stored: removes addresses, numbers and keys. Pure.

One `Redactor` per conversation: equal values get the same placeholder everywhere, so that a call's arguments still agree with
the prompt. Values are recognized by their form (`_PATTERNS`); names and streets are not, and the operator's own patterns remove
those. Placeholders contain no digit and no "@", so that they are not redacted again and form no number with adjacent digits.

Every pattern, the operator's too, is compiled by RE2 (https://github.com/google/re2/wiki/WhyRE2): a search takes time linear in
the text and releases the interpreter's lock. What RE2 has no syntax for is checked on the match (`_Pattern.accepts`).
"""

import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Final, NamedTuple

import re2

DROPPED: Final = "TEXT_DROPPED"  # replaces a text or a value beyond the limits

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False  # RE2 would write an operator's pattern to stderr


def compiled(pattern: str) -> Any:
    """An RE2 pattern. Raises re2.error for what RE2 has no syntax for (lookaround, back references)."""
    return re2.compile(pattern, _OPTIONS)


class TooManySecrets(Exception):
    """A conversation has more different secrets than the limit; nothing of it may be stored."""


class _Pattern(NamedTuple):
    """Replaces each match of `regex` (or its group v, if it has one) for which `accepts` is true."""

    kind: str
    regex: Any
    accepts: Callable[[str], bool] = lambda _: True


def _has_digit(text: str) -> bool:
    return any(char.isdecimal() for char in text)


def _is_token(text: str) -> bool:
    return len(text) >= 20 or _has_digit(text)


def _is_ipv4(text: str) -> bool:
    """Whether a dotted sequence of numbers contains four short ones in a row."""
    sizes = [len(part) <= 3 for part in text.split(".")]
    return any(all(sizes[i : i + 4]) for i in range(len(sizes) - 3))


def _is_ipv6(text: str) -> bool:
    try:
        return len(text) <= 45 and bool(ipaddress.IPv6Address(text))  # the longest, with IPv4 at its end
    except ValueError:
        return False


# As Python's `re` has them for Unicode: RE2's own \w, \s and \d are ASCII.
_W: Final = r"\pL\pN_"
_S: Final = r"\s\x0b\x1c-\x1f\x85\p{Z}"
_D: Final = r"\p{Nd}"

_DATE: Final = (
    rf"(?:(?:19|20){_D}{{2}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]{_D}|3[01])"
    rf"|{_D}{{1,2}}[./-]{_D}{{1,2}}[./-](?:19|20){_D}{{2}})"
)
_DIGITS: Final = rf"\+?\(?{_D}(?:[\t\p{{Z}}\p{{Pd}}\p{{Cf}}\x{{fe0f}}\x{{20e3}}()\x{{ff08}}\x{{ff09}}./\x{{ff0e}}\x{{ff0f}}\x{{b7}}\x{{2212}}]{{0,3}}{_D}){{6,}}"
_AT: Final = r"(?:[@\x{ff20}\x{fe6b}]|%(?:25)*40|\\u0040|&#0{0,4}64;|&#[xX]0{0,4}40;|&commat;| ?[(\[{] ?(?:at|@) ?[)\]}] ?)"
"""The "@" sign as such, and as written in URLs, JSON, HTML and obfuscated addresses."""
_LABEL: Final = rf"[{_W}\pM\p{{Cf}}-]+"
_DOT: Final = r"(?:[.\x{ff0e}\x{3002}\x{ff61}]| ?[(\[{] ?dot ?[)\]}] ?)"
_SECRET_NAMES: Final = (
    r"api[_-]?key|access[_-]?key|client[_-]?secret|secret|token|password|passwd|pwd|passphrase"
)


_PATTERNS: Final[tuple[tuple[Any, ...], ...]] = (
    ("DATA", rf"data:[\w.+-]+/[\w.+-]+(?:;[\w=.+-]+){{0,4}},[^{_S}\"'<>)]*"),
    ("URL", rf"(?i)[a-z][a-z0-9+.-]+://[^{_S}/@]+{_AT}[^{_S}\"'<>]*"),
    ("URL", rf"(?i)[a-z][a-z0-9+.-]+://[^{_S}?#\"'<>]+[?#][^{_S}\"'<>]*(?:{_SECRET_NAMES}|key|sig|signature|auth|code)=[^{_S}\"'<>]*"),
    ("KEY", r"-----BEGIN [A-Z ]{3,40}-----[^-]+(?:-----END [A-Z ]{3,40}-----)?"),
    ("KEY", r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"),
    ("KEY", rf"(?i)\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?(?P<v>(?:(?:basic|bearer|token)[ \t]+)?[^{_S}\"',]{{4,}})"),
    ("KEY", r"(?i)\bbearer[ \t]+(?P<v>[\w.~+/=-]{6,})", _is_token),
    ("KEY", r"\b(?:sk|pk|rk|hf|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs])[-_][\w-]{12,}"),
    ("KEY", r"\b(?:AKIA|ASIA|AIza)[\w-]{12,}"),
    ("KEY", rf"(?i)\b(?:{_SECRET_NAMES})[\"']?[ \t]*[:=][ \t]*[\"']?(?P<v>[^{_S}\"',;]{{3,}})"),
    ("KEY", rf"(?i)\b(?:password|passcode|passphrase|pin(?: code)?) is[ \t]+[\"']?(?P<v>[^{_S}\"',;]{{3,}})"),
    ("ID", r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("KEY", r"(?i)\b[0-9a-f]{32,}\b", _has_digit),
    ("EMAIL", rf"(?:\"[^\"{_S}]{{1,64}}\"|[^{_S}@<>,;:\"()\[\]]{{1,64}})(?:{_AT}{_LABEL}(?:{_DOT}{_LABEL})*)+"),
    ("EMAIL", rf"(?i)[{_W}.+-]{{1,64}}(?: dot [{_W}-]{{1,63}}){{0,3}} at [{_W}-]{{1,63}}(?: dot [{_W}-]{{1,63}})+"),
    ("IP", rf"{_D}+(?:\.{_D}+){{3,}}", _is_ipv4),
    ("IP", rf"[{_W}]*(?::[{_W}]*){{2,}}(?:\.{_D}{{1,3}}){{0,3}}", _is_ipv6),
    ("NUMBER", rf"{_DATE}(?:[^{_D}]|$)|(?P<v>{_DIGITS})"),
)  # fmt: skip
"""Patterns and their replacements, in order: a longer secret comes before a pattern that matches part of it."""


@cache
def _patterns() -> tuple[_Pattern, ...]:
    """Compiled on first use: they take some 40 MiB."""
    return tuple(_Pattern(kind, compiled(form), *accepts) for kind, form, *accepts in _PATTERNS)


_SECRET_FIELD: Final = compiled(rf"(?i)(?:{_SECRET_NAMES}|passcode|pin|authorization)")
_PLACEHOLDER: Final = compiled(r"[A-Z]{2,8}_[A-Z]{1,4}")
_SHORTEST_SECRET: Final = 4  # characters; a shorter one would be found in too many words

# Invisible characters would hide a number or a key. Joiners stay: Kannada and emoji need them.
_INVISIBLE: Final = compiled(
    r"[\x{ad}\x{180e}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{206f}\x{feff}\x{e0000}-\x{e007f}]"
)
_ANY_AT: Final = compiled(_AT)

_GONE: Final = object()  # in place of a number that is left out


class Redactor:
    """The redactor of one conversation. `own` are RE2 patterns (`compiled`) that are applied first.

    A text longer than `characters` (what is left of them) becomes `DROPPED` as a whole, because half a secret cannot be
    recognized, and so does a value nested deeper than `depth`; `dropped` counts both. `secrets`: see TooManySecrets.
    """

    def __init__(
        self, own: Iterable[Any] = (), *, characters: int = 256 << 10, secrets: int = 64, depth: int = 32
    ) -> None:
        self._patterns = (*(_Pattern("REDACTED", regex) for regex in own), *_patterns())
        self._left, self._most_secrets, self._deepest = characters, secrets, depth
        self._known: dict[tuple[str, str], str] = {}
        self._counts = Counter[str]()
        self._secrets: dict[str, str] = {}  # known by what stood before them; elsewhere nothing does
        self.dropped = 0

    def text(self, text: str) -> str:
        """The redacted text. Raises TooManySecrets."""
        if len(text) > self._left:
            return self._drop()
        self._left -= len(text)
        text = self._without_secrets(_well_formed(text))
        for pattern in self._patterns:
            text = pattern.regex.sub(partial(self._replaced, pattern), text)
        return self._without_secrets(text)

    def value(self, value: Any, *, numbers_go: bool = False, depth: int = 0) -> Any:
        """The redacted JSON value, keys included. A number with a match becomes text with the placeholder.

        numbers_go: it is left out instead, because text would make a tool's schema invalid.
        """
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            told = self.text(str(value))
            return value if told == str(value) else _GONE if numbers_go else told
        if depth >= self._deepest:
            return self._drop()
        if isinstance(value, dict):
            pairs = [
                (self.text(key), self._field(key, item, numbers_go, depth + 1)) for key, item in value.items()
            ]
            return {key: item for key, item in pairs if item is not _GONE}
        items = [self.value(item, numbers_go=numbers_go, depth=depth + 1) for item in value]
        return [item for item in items if item is not _GONE]

    def arguments(self, text: str, depth: int = 0) -> Any:
        """A call's arguments as a JSON value; as text, where they are no JSON."""
        if len(text) > self._left:
            return self._drop()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        return self.value(value, depth=depth)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """One turn: what was said, who said it, and which calls were made. Pictures and thoughts are dropped."""
        kept: dict[str, Any] = {"role": message["role"]} if "role" in message else {}
        content = message.get("content")
        if isinstance(content, list):
            texts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
            content = "".join(str(part.get("text", "")) for part in texts)
        if content is not None:
            kept["content"] = self.text(str(content))
        for key in ("name", "tool_call_id", "tool_calls"):
            if message.get(key) is not None:
                kept[key] = self.value(message[key])
        return kept

    def _drop(self) -> str:
        self.dropped += 1
        return DROPPED

    def _without_secrets(self, text: str) -> str:
        for secret, placeholder in self._secrets.items():
            text = text.replace(secret, placeholder)
        return text

    def _field(self, key: str, item: Any, numbers_go: bool, depth: int) -> Any:
        """The value of a field, whose name may say that it is a secret, or the JSON of a call's arguments."""
        if isinstance(item, str) and item and _SECRET_FIELD.fullmatch(_well_formed(key)):
            return self._placeholder("KEY", _well_formed(item))
        if key == "arguments" and isinstance(item, str):
            told = self.arguments(item, depth)
            return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
        return self.value(item, numbers_go=numbers_go, depth=depth)

    def _replaced(self, pattern: _Pattern, found: Any) -> str:
        whole: str = found[0]
        part = pattern.regex.groupindex.get("v", 0)
        value = found[part]
        if value is None:  # the pattern matched without its group: a date, or an operator's pattern
            return whole if pattern.kind == "NUMBER" else self._placeholder(pattern.kind, whole)
        if not pattern.accepts(value):
            return whole
        start, end = (place - found.start() for place in found.span(part))
        return whole[:start] + self._placeholder(pattern.kind, value) + whole[end:]

    def _placeholder(self, kind: str, value: str) -> str:
        if _PLACEHOLDER.fullmatch(value):
            return value
        key = kind, _normal(kind, value)
        if key not in self._known:
            self._counts[kind] += 1
            told = self._known[key] = f"{kind}_{_letters(self._counts[kind])}"
            if kind == "KEY" and len(value) >= _SHORTEST_SECRET:
                if len(self._secrets) >= self._most_secrets:
                    raise TooManySecrets(f"more than {self._most_secrets} keys in one conversation")
                self._secrets[value] = told
        return self._known[key]


def _well_formed(text: str) -> str:
    """The text without invisible characters. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
    if text.isascii():
        return text
    told: str = _INVISIBLE.sub("", text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return told


def _normal(kind: str, value: str) -> str:
    """A normal form, in which two spellings of one value are equal."""
    if kind == "NUMBER":
        return "".join(str(int(char)) for char in value if char.isdecimal())
    return _ANY_AT.sub("@", value).lower() if kind == "EMAIL" else value


def _letters(count: int) -> str:
    """1 is A, 26 Z, 27 AA."""
    letters = ""
    while count:
        count, rest = divmod(count - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
