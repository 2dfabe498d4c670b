"""Detects thoughts that leaked into a reply, with or without their tags: `find_leaks`. Pure.

Without tags a thought is known by its opening, in which signs of several independent kinds meet. One kind alone is never enough:
answers have steps, plans, hesitation and users, too. The kinds: user (the one who asks, in the third person), plan (the reply is
planned, in the first person), let (so is the next step), rules and style (instructions are repeated), reply (the reply is spoken of as
a thing), steps (headings of some models), doubt (it argues with itself), opening (how a thought begins), tool (a tool by its name).

The patterns read lower case with plain apostrophes (`fold`). A sign that needs words is searched for only in a text that has one of them. None
repeats a group or a wide class without a bound.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.tags import markers, own_words

OPENING: Final = 600
"""Characters of a reply in which a thought that leaked shows itself."""

_FILLER: Final = r"okay|ok|alright|all\ right|hmm+|right|so|well|now|first|wait|ah|oh|good|but|let's\ see|let\ me\ (?:see|think)"
_BEGINS: Final = re.compile(
    rf"(?:\A|[.!?:…\n।])[\s>#*_•\d.()\[\"“-]{{0,12}}(?:(?:{_FILLER})[\s,.!…—-]{{1,4}}){{0,4}}\Z", re.VERBOSE
)
"""Matches the text before a sign that begins a sentence or line; filler words may stand between."""
_BEFORE: Final = 40  # characters before a match that are looked at
_SOFT: Final = r"(?:(?:really|also|still|now|just|probably|then|first|not|only|simply|definitely|clearly|to|have|be|been|is|was|has|had|seems?|might|may)\ ){0,4}"
_MUST: Final = r"(?:(?:need|needs|have|ought)\ to|should|must|'ll|will|can|could|would|'d)"
_ASKS: Final = (
    r"(?:ask\w*|want\w*|sa(?:y|ys|id|ying)|mention\w*|need(?:s|ed)?|greet\w*|request(?:s|ed|ing)|wrote|writes|typed|spoke|speaking|"
    r"gave|giving|seems|expect\w*|prefers|know|knows|thank\w*|mean(?:s|t)|refer\w*|interested|curious|trying|testing|happy|sad|upset|"
    r"wondering|looking|agrees?)"
)
_REPLY: Final = r"(?:answer|response|reply|greeting|acknowledge?ment|explanation|tone)"
_ANSWER: Final = (
    r"(?:answer|respond|reply)\b(?!\ (?:to\ )?(?:your|them|him|her|my|the\ (?!user|question|query|prompt|last)|[\w'-]+\ (?:questions|letters?|e?mails?)\b|[\w-]+'s\b|"
    r"by\ (?!saying)|within|in\ \d|today|tomorrow|on\b))"
)
"""Without what else one answers: the door, three questions, a letter, somebody."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A pattern, its kind and weight, and words of which one must occur (none: it only adds to others). `begins`: a sentence or line."""

    kind: str
    weight: int
    needs: frozenset[str]
    regex: re.Pattern[str]
    begins: bool

    def spans(self, low: str) -> Iterator[tuple[int, int]]:
        """Where a folded text has the sign."""
        for match in self.regex.finditer(low):
            if not self.begins or _BEGINS.search(low, max(0, match.start() - _BEFORE), match.start()):
                yield match.span()


_LETTERS: Final = bytes(c if chr(c).isascii() and chr(c).isalpha() else ord(" ") for c in range(256))
_UNSPACED: Final = re.compile("[\u0400-\u1fff\u2e80-\uffff]")
"""Letters of scripts in which a sign's word may be part of a longer word, so that a set of words does not find it."""


def _words(low: str) -> set[str]:
    """The runs of ASCII letters in a folded text; and "?", which every sign in another script needs, if it has letters of `_UNSPACED`."""
    words = set(low.encode("ascii", "replace").translate(_LETTERS).decode().split())
    return words if low.isascii() or not _UNSPACED.search(low) else words | {"?"}


def _sign(kind: str, weight: int, needs: str, regex: str, *, begins: bool = False) -> Sign:
    words = frozenset(max(_words(word), key=len) for word in needs.split())
    return Sign(kind, weight, words, re.compile(regex, re.VERBOSE), begins)


SIGNS: Final = (
    _sign("user", 2, "user human", rf"\b(?:the|this|our)\ (?:user|human)(?:'s\ (?:\w+\ ){{0,2}}(?:question|query|message|request|intent|utterance|greeting|input)\b|\s{_SOFT}{_ASKS}\b|\ (?:is|might\ be|may\ be)\ \w+ing\b)", begins=True),
    _sign("user", 1, "user human", rf"\b(?:the|this|our)\ (?:user|human)(?:'s\ (?:\w+\ ){{0,2}}(?:question|query|message|request|intent|utterance|greeting|input)\b|\s{_SOFT}{_ASKS}\b|\ (?:is|might\ be|may\ be)\ \w+ing\b)"),
    _sign("user", 2, "user", rf"\buser(?:'s)?\s{_SOFT}{_ASKS}\b", begins=True),
    _sign("user", 2, "notice", rf"\bi\ notice\ (?:that\ )?(?:they\b|the\ user(?:'s|\ (?:is|has)|\s{_SOFT}{_ASKS})\b)"),
    _sign("user", 1, "they", r"\bthey(?:'re|\ are|\ have|\ just)?\ (?:ask|want|greet|thank|say\b|said|tell|told|didn't\ say)\w*", begins=True),
    _sign("user", 2, "用户 ユーザー 사용자 المستخدم", r"用户(?:刚|现在|正)?(?:在)?(?:问|说|想|要|让|希望|询|输入|发|需要|似乎|提|给|请求)|ユーザー[はが][^。\n]{0,40}(?:尋ね|聞い|求め|言っ|質問)"
        r"|사용자[가는][^.\n]{0,40}(?:묻|물었|원하|요청|말했|질문)|المستخدم\s(?:يسأل|يريد|يطلب|سأل|قال)"),
    _sign("user", 2, "usuario usuário utente utilisateur nutzer benutzer пользователь", r"\b(?:el\ usuario|o\ usuário|l'utente|l'utilisateur|der\ (?:nutzer|benutzer)|пользователь)\s(?:\w+\ ){0,2}"
        r"(?:pregunt|quier|pid|dice|pergunt|quer|ped|diz|chied|vuole|demand|veut|souhait|dit|frag|möcht|will|bitt|sagt|спраш|спрос|хочет|прос|говор)"),
    _sign("user", 2, "उपयोगकर्ता ಬಳಕೆದಾರ", r"उपयोगकर्ता\s(?:\S{1,20}\s){0,6}?(?:पूछ|चाह|कह|जानना)|ಬಳಕೆದಾರ[^\s,.]{0,40}[\s,]{1,4}(?:\S{1,60}\s{1,4}){0,5}?(?:ಕೇಳ|ಹೇಳ|ಬಯಸ|ಇಚ್ಛಿಸ|ನನ್ನ|ಪ್ರಶ್ನ|ಕೋರ)"),
    _sign("plan", 2, "i we", rf"\b(?:i|we)(?:\ {_SOFT}{_MUST}|'ll|'d)\ {_SOFT}(?:{_ANSWER}|acknowledge|greet|craft|formulate|draft|"
        rf"keep\ (?:it|this|my|the\ (?:{_REPLY}|conversation))\b|come\ up\ with|"
        rf"avoid\ (?:using\ )?(?:markdown|bullet|list|emoji)|(?:use|call|invoke)\ (?:(?:the|a|my)\ [`\"']?\w+[`\"']?\ (?:tool|function)|[a-z]+_[a-z])|"
        rf"(?:give|offer|provide)\ (?:a|an|them|some|only)\ (?:\w+,?\ (?:and\ )?){{0,3}}{_REPLY}|figure\ out\ (?:what|how|which)|"
        rf"be\ (?:friendly|polite|brief|concise|warm|helpful|encouraging|empathetic|honest|clear)|say\ so\b|"
        rf"make\ (?:sure|sense)\ (?:the\ {_REPLY}|my|it|of)\b)"),
    _sign("plan", 2, "need should must have", rf"\b(?:(?:we|the\ assistant)\ )?(?:need|should|must|have)\ {_SOFT}(?:{_ANSWER}|output|produce|call)\b", begins=True),
    _sign("plan", 2, "我 返答 答え 대답 답변 يجب ответить देना", r"我(?:需要|应该|得|必须)(?:先|用|直接|简短)?(?:回答|回复|回应|给|调用|告诉|用|简短)|返答(?:する)?(?:べき|必要)|答え(?:る)?(?:べき|必要|なければ)"
        r"|대답해야|답변해야|يجب\sأن\s(?:أرد|أجيب)|(?:я\sдолж\w+|нужно)\s(?:\S{1,20}\s){0,2}ответить|मुझे\s(?:\S{1,20}\s){0,6}?(?:जवाब|उत्तर)\sदेना"),
    _sign("plan", 2, "responder contestar répondre antworten rispondere", r"\b(?:debo|tengo\ que|necesito|debería|devo|preciso|je\ (?:dois|devrais|vais)|ich\ (?:muss|sollte|soll|werde)|dovrei)"
        r"\ (?:\w+\ ){0,4}?(?:responder|contestar|répondre|antworten|beantworten|rispondere)\b"),
    _sign("plan", 2, "ನಾನು ಯೋಚಿಸ ವಿಶ್ಲೇಷಿಸೋಣ ಹಾಕೋಣ", r"ನಾನು\s{1,4}(?:\S{1,60}\s{1,4}){0,6}?(?:ಉತ್ತರಿಸಬೇಕು|ಪ್ರತಿಕ್ರಿಯಿಸಬೇಕು|ಉತ್ತರ\s+(?:ಕೊಡ|ನೀಡ|ಹೇಳ)ಬೇಕು|\S{0,60}\s?(?:ಬಳಸ|ಕರೆಯ)ಬೇಕು)"
        r"|ಯೋಚಿಸ(?:ೋಣ|ಬೇಕು)|ಯೋಚಿಸೋಣ|ವಿಶ್ಲೇಷಿಸೋಣ|ಲೆಕ್ಕ\s+ಹಾಕೋಣ"),
    _sign("plan", 1, "need should shouldn't must have", rf"\b(?:i|we)\ {_SOFT}(?:(?:need|have)\ to|should(?:n't)?|must)\ {_SOFT}\w+"),
    _sign("let", 1, "let", r"\blet(?:\ me|'s|\ us)\ (?:think|see|check|recall|re-?read|double[- ]check|verify|analy[sz]e|break|parse|figure|consider|try|start|look|work)\b"),
    _sign("let", 1, "maybe perhaps could should", r"\b(?:maybe|perhaps|could|should)\ (?:just\ )?(?:ask|say|mention|offer|call|use|start)\b", begins=True),
    _sign("rules", 2, "system instruction instructions guidelines persona developer", r"\b(?:the\ system\ (?:prompt|message|instructions?)|my\ (?:instructions?|guidelines|persona|system\ prompt)|"
        r"the\ developer\ message)\ (?:\w+ly\ )?(?:say|state|tell\w*\ me|require|specif|mention|want|indicate|emphasi|ask|is\ clear|are\ clear)\w*"),
    _sign("rules", 1, "instructions guidelines", r"\bthe\ (?:instructions|guidelines)\ (?:say|state|tell\w*\ me|ask\ (?:me|for)|require)\b"),
    _sign("rules", 2, "system instructions guidelines persona", r"\b(?:according\ to|as\ per|per)\ (?:(?:the|my)\ system\ (?:prompt|message)|my\ (?:instructions|guidelines|persona))\b"),
    _sign("reply", 2, "my", rf"\bmy\ {_REPLY}\ (?:should|must|needs\ to|has\ to)\ (?:be|not|include|sound|stay)\b"),
    _sign("reply", 1, "answer response reply greeting explanation tone", rf"\bthe\ {_REPLY}\ (?:should|must|needs\ to|has\ to)\ (?:be|not|include|sound|stay)\b"),
    _sign("reply", 2, "this", r"\bthis\ is\ (?:just\ )?an?\ (?:simple|straightforward|basic|factual|general|casual)\ (?:\w+\ ){0,2}(?:question|request|greeting|task)\b"),
    _sign("reply", 1, "something say question query", r"\b(?:something\ like:?|maybe\ say|could\ say|should\ say)\ [\"“‘]|\bthe\ (?:question|query)\ (?:is|asks)\b"),
    _sign("steps", 2, "analyze analyse identify determine check", r"(?:\*\*|\d\.\s{1,3}\**|\A)(?:analy[sz]e\ (?:the\ |user\ )?(?:user|request|input)|identify\ constraints|determine\ the\ response|"
        r"constraint\ check|final\ check)\b"),
    _sign("steps", 1, "draft", r"[*\n]\s{0,8}draft\ \d\b"),
    _sign("style", 1, "", r"\b(?:(?:one|a|1)\ (?:short\ |spoken\ |brief\ ){0,2}sentence\b|(?:one\ (?:to|or)|1\ ?(?:-|–|to|or)|two\ (?:to|or)|2\ ?(?:-|–|to|or))\ ?"
        r"(?:two|three|2|3)\ (?:(?:short|spoken|brief|plain)\ ){0,3}sentences\b)"),
    _sign("style", 1, "", r"\b(?:(?:no|without|avoid|avoiding|not\ (?:to\ )?use|don't\ use)\ (?:any\ )?(?:markdown|bullets?|lists|"
        r"formatting|emojis?)\b|(?:be|it|this|stay)\ (?:short|brief|concise)\b|(?:spoken|read)\ aloud|(?:spoken|plain)\ (?:text|sentences?)|headings\ and\ bullet|(?:short|spoken|markdown)\?\ (?:yes|no))"),
    _sign("style", 1, "", rf"\bkeep\ (?:it|this|the\ {_REPLY})\ \w+", begins=True),
    _sign("style", 1, "", rf"\b(?:short|brief|polite|warm|friendly|simple|direct|concise|structured)(?:,?\ (?:and\ )?\w+)?\ {_REPLY}\b|"
        r"\bin\ a\ \w+\ tone\b|\bthis\ greeting\b"),
    _sign("style", 1, "", r"(?:ಒಂದರಿಂದ\s+ಮೂರು|ಒಂದು)\s+(?:(?:ಚಿಕ್ಕ|ಸಣ್ಣ)\s)?ವಾಕ್ಯ|ಮಾರ್ಕ್‌?ಡೌನ್|ಚಿಕ್ಕದಾಗಿ|简短"),
    _sign("doubt", 2, "", r"\b(?:but\ )?wait[,…—-]+\s*(?:no\b|the\ (?:user|question|system|instruction)|let\ me|is\ (?:it|that)|did\b|but\b|actually|re-?read|maybe)|"
        r"\bself[- ]correction\b"),
    _sign("doubt", 1, "", r"\b(?:but|no|hmm+|oh),?\ wait\b|\bactually,|\balternatively,"),
    _sign("doubt", 1, "", r"ತಡಿ,|ತಾಳಿ,|等等|不对"),
    _sign("opening", 1, "", r"\A[\s*_]{0,4}(?:(?:(?:okay|ok|alright|hmm+|wait)[,.!…\s]|(?:now|so|first|well),)\s{0,2}){1,3}(?=(?:the|this|our)\ (?:user|human)\b|user\b)|"
        r"\Auser\ (?:asks|asked|says|said|wants)\b"),
    _sign("opening", 1, "", r"\A[\s*_]{0,4}(?:okay|ok|alright|hmm+|wait)[,.!…\s]{1,3}(?:so[,\s]{1,2})?(?=(?:let|i|we)\b)|"
        r"\A(?:vale|bien|d'accord|gut|okay)[,.\s]"),
    _sign("opening", 1, "", r"\A(?:好的|嗯|好|はい|ええと|음|좋아|ಸರಿ|ठीक\ है|хорошо|так)[,，、.\s]"),
    _sign("tool", 1, "", r"\b(?:call|use|using|there's)\ (?:the\ )?[`\"']?[a-z]+_[a-z]+|\b(?:there's|there\ is|i\ have|we\ have|check\ the|the\ available)\ (?:an?\ |no\ |the\ )?"
        r"(?:\w+\ ){0,2}tools?\b|\bsearch\ (?:my\ )?memory\b|\bthe\ (?:function|tool)\ \w+_\w+\ (?:takes|needs|requires)\b"),
)  # fmt: skip
"""A thought has one at least of those that need a word; the others add to it."""


def fold(text: str) -> str:
    """The text in lower case with plain apostrophes; it keeps its length, so that positions stay valid."""
    low = text.lower().replace("’", "'")
    if len(low) != len(text):  # the lower case of a few capitals is longer
        low = "".join(c.lower() if len(c.lower()) == 1 else c for c in text).replace("’", "'")
    return low


_ENOUGH: Final = 3  # points


def find_leaks(text: str, *, reasoning: str = "") -> list[Detection]:
    """Every sign that a thought reached the caller although thinking is off."""
    findings = []
    if reasoning.strip():
        findings.append(detection("leak", "reasoning", reasoning, 0, len(reasoning), part="reasoning"))
    tags = sorted(span for marker, *span in markers(text) if marker.kind == "think")
    findings += [detection("leak", "tag", text, *span) for span in tags]
    return findings + _monologue(text)


def _monologue(text: str) -> list[Detection]:
    """At most one detection: the opening from the first sign to the last."""
    low = fold(own_words(text[:OPENING]))
    signs = {id(one): one for word in _words(low) & _BY_WORD.keys() for one in _BY_WORD[word]}
    if not (found := _found(signs.values(), low)):
        return []
    found += _found(_FURTHER, low)
    points: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for weight, start, end, kind in sorted(found, reverse=True):  # words that are two signs count as one
        if all(end <= first or last <= start for first, last in spans):
            spans.append((start, end))
            points.setdefault(kind, weight)  # its heaviest sign
    is_diary = points.keys() <= {"plan", "let", "doubt", "opening"} and points.get("plan") != 2  # or a proof
    if is_diary or sum(points.values()) < _ENOUGH:
        return []
    return [detection("leak", "monologue", text, min(spans)[0], max(end for _, end in spans))]


_BY_WORD: Final = {word: [one for one in SIGNS if word in one.needs] for sign in SIGNS for word in sign.needs}
_FURTHER: Final = [sign for sign in SIGNS if not sign.needs]


def _found(signs: Iterable[Sign], low: str) -> list[tuple[int, int, int, str]]:
    """(weight, start, end, kind) wherever a text has one of these signs."""
    return [(sign.weight, *span, sign.kind) for sign in signs for span in sign.spans(low)]
