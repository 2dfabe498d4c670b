"""Patterns for the wording of thoughts without tags, with weights, and their lookup.

A thought speaks about the user in the third person, plans its answer, corrects itself and quotes its
instructions; an answer rarely does. A pattern of weight 3 decides alone. Lighter ones also occur in
answers ("Let me check", "Actually, it is Tuesday") and are summed; see `leak.py`.

Sources of the wording: Qwen3 and Qwen3.5 ("Okay, the user is asking", "Thinking Process:" with numbered
bold steps), DeepSeek-R1 and its distillations ("Alright, so I need to figure out"), models distilled
from Claude ("Let me analyze this request carefully"), gpt-oss ("We need to answer", "User asks:"), GLM
("The user wants"); the same in Chinese and Kannada; and this repository's nano models.

For speed, patterns are written for lower case with plain apostrophes (`fold`), begin with letters, and
name words without which they cannot match; only then are they run. No group and no wide character
class is repeated without a bound, so the work is linear in the text. Whether a match is at the
beginning of a sentence is checked afterwards, on the few characters before it.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

DECISIVE_WEIGHT: Final = 3
"""The weight that decides alone."""

Where = Literal["anywhere", "sentence", "text"]


@dataclass(frozen=True, slots=True)
class LeakPattern:
    """A pattern and its weight.

    `where`: anywhere, at the start of a sentence or line, or at the start of the text. `needs` are
    alternatives; all words of one of them must occur in the text.
    """

    kind: str
    weight: int
    needs: tuple[frozenset[str], ...]
    regex: re.Pattern[str]
    where: Where = "anywhere"


def _pattern(kind: str, weight: int, needs: str, regex: str, where: Where = "anywhere") -> LeakPattern:
    alternatives = tuple(frozenset(need.split()) for need in needs.split("|"))
    return LeakPattern(kind, weight, alternatives, re.compile(regex, re.VERBOSE), where)


_MUST: Final = r"(?:need|needs|should|must|have|ought)(?:\ to)?\ "
_NEED: Final = "need|should|must|have to|ought to"
_SOFTLY: Final = (
    r"(?:(?:really|also|still|now|just|probably|then|first|not|only|simply|definitely|clearly)\ )?"
)
# Words that may stand between "the user" and the verb.
_BETWEEN: Final = (
    r"(?:(?:\w+ly|just|also|still|now|first|then|maybe|perhaps|have|has|had|is|was|may|might|could|would|will|does|did|"
    r"do|not|doesn't|didn't|hasn't|isn't|wasn't|to|seems?|be|been|here|again|only)\ ){0,4}"
)
_OF_USER: Final = (
    r"(?:ask|asks|asked|asking|want|wants|wanted|wanting|say|says|said|saying|tell|tells|told|telling|mention\w*|need|needs|"
    r"needed|greet\w*|request\w*|wrote|writes|typed|spoke|speaks|speaking|look\w*|provid\w+|gave|gives?|giving|expect\w*|"
    r"likes?|prefer\w*|know|knows|knew|think|thinks|thought|mean|means|meant|specif\w+|refer\w*|interested|curious|trying|"
    r"tries|tried|using|address\w*|repeat\w*|instruct\w*|include[ds]?|share[ds]?|called|calls|calling|query|question|"
    r"message|input|prompt|intent|intention|tone|mood|last|previous|first|original|current|utterance|system|profile|"
    r"preferences?|located|happy|sad|upset|frustrated|confused|responded|replied|replies|answered|in|from|at|could|can\ see|"
    r"doesn't|didn't|hasn't|isn't|says|agrees?|thank\w*)\b"
)

PATTERNS: Final = (
    # ---------------------------------------------------------------- about the user, in the third person
    _pattern("third_person", DECISIVE_WEIGHT, "user|human", r"""
        (?:okay|ok|alright|all\ right|hmm+|right|well|so|now|first|wait|ah|oh|let's\ see|let\ me\ see|good)
        [\s,.!…—-]{1,8}(?:(?:so|then|now|let's\ see|well|first|the\ first)[\s,.!…—-]{1,8}){0,6}(?:the|this|our)\ (?:user|human)\b""", "sentence"),
    _pattern("third_person", DECISIVE_WEIGHT, "user|human", rf"""
        (?:the|this|our|my)\ (?:user|human)(?:'s\ (?!manual|guide|agreement|account|phone|device|screen)\w|(?:s')?\s+{_BETWEEN}{_OF_USER})"""),
    _pattern("third_person", DECISIVE_WEIGHT, "user", r"""
        user(?:'s)?\s+(?:asks?|asked|wants?|wanted|says?|said|is\ asking|is\ saying|just\ said|query|question|request|input|
        message|intent|needs|greets|greeted)\b""", "sentence"),
    _pattern("third_person", 2, "user", r"""
        (?:the|this)\ user\b(?!\s+(?:manual|name|interface|guide|account|id|experience|group|data|agreement|can\b|must\b|
        has\ to\b|click|press|list))"""),
    _pattern("third_person", DECISIVE_WEIGHT, "they", r"""
        they(?:\ ask\ (?:what|if|whether|who|how|why|when|where|which|for|about|me|in|to|again)|are\ (?:asking|greeting|thanking)|'re\ asking|
        want\ (?:me\ to|to\ (?:hear|know|talk|chat|see\ if))|tell\ me\b|told\ me\b|(?:never|did\ not|didn't)\ tell\ me|never\ told\ me|
        greet|thank\ me|say\ (?:hello|hi|goodbye|thanks|thank|bye|they|good\ night)|praise|insult|complain|joke)\b""", "text"),
    _pattern("third_person", 1, "they", r"they(?:\ |'re\ )(?:ask|want|mention|might|may|seem|probably|didn't|also|could\ be)\w*\b", "sentence"),
    # ------------------------------------------------------------------------------------- planning a reply
    _pattern("planning", DECISIVE_WEIGHT, _NEED, rf"""
        [iw]e?\ {_SOFTLY}{_MUST}{_SOFTLY}(?:
            respond|reply|figure\ (?:out|this)|craft|formulate|acknowledge|greet|produce|output|draft|parse|
            answer\ (?:in|with|as|this|that|the|it|directly|briefly|concisely|plainly|politely|using|based|from|by|to|user)\b|
            keep\ (?:it|this|my|the|things)\b|provide\ (?:a|an|the|some|them|only)\b|generate\ (?:a|an|the)\b|
            (?:give|offer)\ (?:a|an|the|them)\ (?:\w+\ (?:and\ \w+\ )?){{0,2}}(?:answer|response|reply|greeting|explanation|summary)|
            (?:use|call|invoke)\ (?:the\ )?[`"']?(?:\w+_\w+|\w+\ (?:tool|function)|tools?\b|functions?\b)|
            come\ up\ with|avoid\ (?:using\ )?(?:markdown|bullet|list|emoji|special|format)\w*|stick\ to\ (?:the|my)|
            follow\ (?:the|my|these)\ (?:system|instruction|rule|guideline|format|prompt)\w*|(?:format|structure)\ (?:it|this|the|my)|
            remember\ (?:that\ )?(?:i\ am|i'm|to\ keep|the\ (?:instruction|rule|system)))"""),
    _pattern("planning", DECISIVE_WEIGHT, "search|greet|look", rf"[iw]e?\ {_MUST}(?:search\ (?:my\ |the\ |for\ )?(?:memory|memories|web|internet)\b|greet\ back\b)"),
    _pattern("planning", DECISIVE_WEIGHT, "headings|heading|bullet|bold|list|markdown", r"i(?:\ will|'ll)\ use\ (?:headings?|bullet\ points?|markdown|a\ list|bold)\b"),
    _pattern("planning", DECISIVE_WEIGHT, "call|use|invoke|using|calling", r"""
        (?:i(?:'ll|\ will)|i'm\ going\ to|by|so)\ (?:now\ |just\ )?(?:use|call|invoke|using|calling)\ (?:the\ )?[`"']?[a-z]+_\w+"""),
    _pattern("planning", DECISIVE_WEIGHT, "need|have to", r"""
        (?:okay|ok|alright|hmm+|right)[\s,.!…]{1,8}(?:so[\s,]{1,4})?(?:i|we)\ (?:need|have)\ to\ (?!(?:know|ask|tell|go|stop|leave|be|hear|have|check|look|wait|restart|update|turn|get|take|see)\b|\w+\ your\b)""", "text"),
    _pattern("planning", DECISIVE_WEIGHT, "tackle|try figure|break", r"(?:let's\ tackle|let\ me\ try\ to\ figure|let(?:'s|\ me)\ break\ (?:this|it|down))\b", "text"),
    _pattern("planning", DECISIVE_WEIGHT, "need", r"""
        i\ need\ to\ (?:provide|determine|identify|convert|create|solve|calculate|explain|summari[sz]e|translate|write|find|recall|
            consider|address|handle|interpret|verify)\b(?!\ (?:out\b|your|my\ keys))""", "text"),
    _pattern("planning", DECISIVE_WEIGHT, "need", r"""
        we\ need\ (?:to\ )?(?:answer|pick|produce|determine|output|respond|reply|provide|compute)\b(?!\ (?:them|him|her|up)\b)""", "text"),
    _pattern("planning", 2, "given|asked", r"we(?:\ are|'re)\ (?:given|asked)\b", "text"),
    _pattern("planning", DECISIVE_WEIGHT, "to", r"""
        to\ (?:solve|answer|determine|find|proceed|calculate|compute|address|respond|handle)\b[^.\n]{0,80},\ i\ (?:start|need\ to|should|must|have\ to)\b(?!\ (?:know|have|see|hear|ask)\b)""", "text"),
    _pattern("planning", 2, "need", r"(?:maybe\ )?need\ (?:to\ )?(?:check|answer|find|search|use|call|say|respond|provide|give|produce|retrieve|output|not)\b", "sentence"),
    _pattern("planning", 2, "make sure", r"make\ sure\ (?:the\ (?:response|answer|reply|tone)|my\ (?:response|answer|reply)|it\ sounds|not\ to\ (?:use|include|mention))\b"),
    _pattern("planning", 2, "notice", r"i\ notice\ (?:they|the\ user|that\ (?:they|the\ user))\b"),
    _pattern("tools", 2, "parameter|parameters|argument|arguments", r"(?:as|requires?|takes?|set)\ (?:a|an|the|as\ the|two|one|no)?\ ?(?:\w+\ )?(?:parameters?|arguments?)\b"),
    _pattern("planning", DECISIVE_WEIGHT, "figure|sense|work|understand|solve", r"""
        [iw]e?(?:'m|\ am|\ need|\ have|\ want)\ (?:trying\ )?to\ (?:figure|make\ sense|work\ out|understand|solve)\b""", "sentence"),
    _pattern("planning", 2, _NEED, rf"""
        [iw]e?\ {_SOFTLY}{_MUST}(?:\w+ly\ )?(?:
            check|recall|consider|think|determine|verify|confirm|explain|mention|make\ sure|ensure|look|find|search|use|call|answer|give|
            say|ask|be|avoid|start|address|break|analy[sz]e|compute|calculate|include|respect|decide|do|note|clarify|list|describe|
            present|convert|write|state|help|handle|identify|compare|remember|suggest|tell|add|introduce|share|approach|thank|wish|encourage|
            offer|provide|focus|highlight|reassure)\b""", "sentence"),
    _pattern("planning", 2, "let", r"""
        let(?:\ me|'s|\ us)\ (?:analy[sz]e|break\ (?:this|it|that|down)|parse|unpack|draft|formulate|craft|rephrase|
            re-?(?:read|think|examine|check)|double[- ]check|recall|work\ (?:through|it\ out)|walk\ through\ (?:this|the\ problem)|
            think\ (?:through|step|about\ (?:how|what|the|this)|carefully)|figure\ (?:out|this)|consider|start\ by|verify|compute|calculate|
            go\ (?:through|over|with)|reconsider|write\ (?:it|that|the\ (?:answer|reply|response))|
            check\ (?:the\ (?:tools?|instructions?|system|context|conversation|rules|constraints)|my\ (?:instructions|rules|available)|
                if\ (?:there|the\ user|i\ have\ a)|what\ tools)|see\ what\ (?:tools|the\ user)|make\ sure)"""),
    _pattern("planning", 1, "let", r"let(?:\ me|'s)\ (?:think|see|check|look)\b"),
    _pattern("planning", 1, "maybe|perhaps|also", r"(?:(?:then|also),?\ )?(?:maybe|perhaps|also)\ (?:start|ask|mention|say|offer|add|check|include|use|suggest)\b", "sentence"),
    _pattern("planning", 2, "this is question|this is task|this is request|this is greeting|this is message", r"""
        this\ is\ (?:a|an|another|just\ a)\ (?:\w+\ (?:and\ )?){0,4}(?:question|task|request|greeting|message)\b""", "sentence"),
    _pattern("planning", 2, "first", r"first,\ i(?:'ll|\ will|'m\ going\ to)\ (?:look\ at|identify|calculate|analy[sz]e|determine|consider|recall|list|break|examine|start)\b", "sentence"),
    _pattern("planning", DECISIVE_WEIGHT, "know this one", r"i\ know\ this\ one\.\s+the\ answer\ is\b", "text"),
    _pattern("planning", 2, "response|reply|answer", r"""
        (?:my|the)\ (?:response|reply|answer)\ (?:should|must|needs\ to|has\ to|will|could|can|would)\ (?:be\b(?!\ (?:ready|there))|not\b|include|
            follow|sound|stay|contain|mention|start|fit)"""),
    _pattern("planning", 2, "something like|say", r"""
        (?:something\ like[:,]?\ ?["“‘]|(?:maybe|perhaps|i\ could|i\ can|i'll|i\ will|i\ might|could|should)\ (?:just\ )?say[:,]?\ ?["“‘])"""),
    # ----------------------------------------------------------------------------- headings of written thought
    _pattern("heading", DECISIVE_WEIGHT, "process", r"(?:my\ |the\ )?(?:thinking|thought|reasoning)\ process\ ?\**\ ?(?::|\n|$)", "sentence"),
    _pattern("heading", DECISIVE_WEIGHT, "process", r"here(?:'s|\ is)\ (?:a|my|the)\ (?:\w+\ )?(?:thinking|thought|reasoning)\ process\b"),
    _pattern("heading", DECISIVE_WEIGHT, "reasoning|thinking|thought|thoughts|internal|chain|correction|constraint|constraints|final|draft|attempt|option", r"""
        (?:(?:reasoning|thinking|thoughts?|internal\ (?:monologue|thoughts?|reasoning)|chain\ of\ thought)\ ?\**(?::|\n)|
            self[- ]correction\b|constraints?(?:\ check)?\ ?\**:|(?:draft|attempt|option)\ ?\d+\ ?\**:|draft\ ?\**:|
            final\ (?:answer|response|output|check|polish|decision|version|review)\ ?\**:)""", "sentence"),
    _pattern("heading", DECISIVE_WEIGHT,
        "analyze|analyse|understand|identify|determine|formulate|draft|drafting|evaluate|refine|refining|brainstorm|brainstorming|review|"
        "check|verify|plan|construct|select|selecting|final|finalize|consult|recall|compare|assess|consider|deconstruct|decide|generate|"
        "synthesize|scan|structure|polish", r"""
        (?:\*\*|\d[.)]\s+\**)(?:analy[sz]e|understand|identify|determine|formulate|draft(?:ing)?|evaluate|refin(?:e|ing)|brainstorm(?:ing)?|
            review|check|verify|plan|construct|select(?:ing)?|final(?:i[sz]e|\ polish|\ check|\ review|\ decision|\ output|\ version)?|consult|
            recall|compare|assess|consider|deconstruct|decide|generate|synthesi[sz]e|scan|structure|polish)\b[^\n]{0,60}?(?::|\*\*)"""),
    _pattern("heading", DECISIVE_WEIGHT, "analyze|analyse|understand|identify|break|parse", r"""
        (?:let\ me|let's|i(?:'ll|\ will|\ need\ to|\ should)|first,?\ (?:i|let's))\ (?:\w+ly\ )?
            (?:analy[sz]e|break\ down|understand|identify|parse)\ (?:this|the|what|their|each)\b""", "text"),
    _pattern("heading", 1, "goal|tone|intent|persona|role|context|task|input|language|plan|request|format|topic|style|length|step|critique", r"""
        (?:goal|tone|(?:user\ )?intent|persona|role|context|task|input|(?:user\ )?language|plan|(?:user\ )?request|format|topic|style|length|
            step\ 1|critique)\ ?\**:""", "sentence"),
    # --------------------------------------------------------------------------------- arguing with itself
    _pattern("self_correction", DECISIVE_WEIGHT, "wait", r"""
        wait[,.…—-]+\s*(?:no\b|the\ user|let\ me|is\ (?:it|that)|did\b|does\b|but\b|i\ (?:should|need|have\ to|must|don't\ have)|maybe|what\ about|
            one\ more|actually|re-?read|the\ (?:system|instruction|prompt|question|tool|rule|constraint|query)\w*)""", "sentence"),
    _pattern("self_correction", 2, "wait", r"(?:(?:oh|but|no|hmm+),?\ wait\b[,.…—-]|wait[,…—])", "sentence"),
    _pattern("self_correction", 1, "hmm|hmmm|hmmmm", r"hmm+\b"),
    _pattern("self_correction", 1, "actually", r"actually,", "sentence"),
    _pattern("self_correction", 1, "alternatively|second|hold on|scratch that|or maybe|maybe i|perhaps i|go with",
             r"(?:alternatively,|on\ second\ thoughts?,|hold\ on,|scratch\ that|or\ maybe\b|maybe\ i\b|perhaps\ i\b|let's\ go\ with)", "sentence"),
    _pattern("self_correction", 1, "that makes|that works|that should|that sounds",
             r"that\ (?:makes\ sense|works|should\ (?:work|do|suffice|cover\ it|be\ (?:good|fine|enough))|sounds\ (?:good|right))[.!]", "sentence"),
    # ------------------------------------------------------------------------------ quoting its instructions
    _pattern("instructions", DECISIVE_WEIGHT, "system|instructions|instruction|guidelines|prompt|persona|developer|rules", r"""
        (?:the\ system\ (?:prompt|message|instructions?)|my\ (?:instructions?|guidelines|persona|system\ prompt)|
            the\ (?:instructions?|guidelines|prompt|persona|developer\ message|rules))\ (?:\w+ly\ )?(?:say|says|said|state|states|stated|tell|tells|
            require|requires|specif\w+|mention\w*|want\w*|indicate\w*|is\ clear|are\ clear|emphasi\w+|instruct\w*|ask\w*\ (?:me|for|to)|dictate\w*)\b"""),
    _pattern("instructions", DECISIVE_WEIGHT, "system|instructions|instruction|guidelines|persona|developer",
             r"(?:according\ to|as\ per|per|based\ on|following)\ (?:the|my)\ (?:system\ prompt|system\ message|instructions?|guidelines|persona|developer\ message)\b"),
    _pattern("instructions", DECISIVE_WEIGHT, "as annie|as assistant|as ai",
             r"as\ (?:annie|an?\ (?:\w+\ ){0,2}(?:assistant|ai)),?\ (?:i|my\ \w+)\ (?:should|need|must|have\ to)\b"),
    _pattern("instructions", 2, "sentences", r"""
        (?:one\ to\ three|1\ ?(?:-|–|to)\ ?3|two\ or\ three|one\ or\ two|1\ ?(?:-|–|to|or)\ ?2|2\ ?(?:-|–|to)\ ?3)\ (?:(?:short|spoken|brief|plain)\ ){0,4}sentences\b"""),
    _pattern("instructions", 2, "markdown|bullet|bullets|formatting|plain|aloud", r"""
        (?:(?:no|without(?:\ any)?|avoid(?:ing)?|not\ use|don't\ use|never\ use)\ (?:markdown|bullets?|bullet\ points|formatting)\b|
            in\ plain\ (?:spoken\ )?(?:text|sentences)\b|it\ will\ be\ (?:spoken|read)\ aloud)"""),
    _pattern("instructions", 2, "keep", r"""
        keep\ (?:it|this|the\ (?:tone|answer|reply|response)|my\ (?:tone|answer|reply|response))\ (?:\w+\ (?:and|but)\ )?(?:short|brief|concise|simple|
            friendly|natural|conversational|light|warm|spoken|polite|positive|casual|helpful|open)\b""", "sentence"),
    _pattern("tools", 2, "tool|tools|function|functions", r"""
        (?:there(?:'s|\ is|\ are)(?:\ an?|\ no)?\ (?:\w+\ ){0,2}(?:tools?|functions?)\b|the\ available\ (?:tools|functions)|
            (?:the|a)\ [`"']?\w+_\w+[`"']?\ (?:tool|function)|i\ have\ (?:access\ to\ )?(?:a|the|these|no)\ (?:\w+\ ){0,2}(?:tools?|functions?)\b|
            no\ tools?\ (?:is|are|call)|(?:tool|function)\ call\b|needs?\ a\ tool)"""),
    # ------------------------------------------------------------------------------------- other languages
    _pattern("third_person", DECISIVE_WEIGHT, "用户", r"用户(?:问|说|想|在|要|让|希望|的|询|输入|发|需要|似乎|可能|刚|提|给|请求|现在|并)"),
    _pattern("planning", 2, "我|首先|嗯", r"我(?:需要|应该)(?:先|用|回|给|检|确|考|想|根据|调用)|让我(?:想|看|分析|思考)|首先，我|嗯[，,]"),
    _pattern("third_person", DECISIVE_WEIGHT, "ಬಳಕೆದಾರ", r"ಬಳಕೆದಾರ[^\s,.]{0,40}[\s,]{1,4}(?:\S{1,60}\s{1,4}){0,5}?(?:ಕೇಳ|ಹೇಳ|ಬಯಸ|ಇಚ್ಛಿಸ|ತಿಳಿ|ನನ್ನ|ಪ್ರಶ್ನ|ಶುಭಾಶಯ|ಕೋರ)"),
    _pattern("heading", DECISIVE_WEIGHT, "ಪ್ರಕ್ರಿಯೆ", r"(?:ಆಲೋಚನಾ?|ಯೋಚನಾ?|ಚಿಂತನಾ?|ಚಿಂತನೆಯ|ಆಲೋಚನೆಯ|ಯೋಚನೆಯ)\s*ಪ್ರಕ್ರಿಯೆ\s*:"),
    _pattern("planning", DECISIVE_WEIGHT, "ನಾನು", r"""
        ನಾನು\s{1,4}(?:\S{1,60}\s{1,4}){0,6}?(?:ಉತ್ತರಿಸಬೇಕು|ಪ್ರತಿಕ್ರಿಯಿಸಬೇಕು|ಉತ್ತರ\s+(?:ಕೊಡ|ನೀಡ|ಹೇಳ)ಬೇಕು|[^\s_]{0,40}_\S{0,60}\s{1,4}(?:\S{1,60}\s{1,4})?(?:ಬಳಸ|ಕರೆಯ)ಬೇಕು|
            (?:ಸಾಧನ|ಉಪಕರಣ|ಟೂಲ್)\S{0,40}\s{1,4}(?:ಬಳಸ|ಕರೆಯ)ಬೇಕು)"""),
    _pattern("planning", 2, "ವಿಶ್ಲೇಷಿಸ|ಯೋಚಿಸ|ಪರಿಶೀಲಿಸೋಣ|ಹಾಕೋಣ", r"""
        ವಿಶ್ಲೇಷಿಸ(?:ೋಣ|ಬೇಕು|ುತ್ತೇನೆ)|ವಿಶ್ಲೇಷಿಸೋಣ|ಯೋಚಿಸ(?:ೋಣ|ಬೇಕು|ುತ್ತೇನೆ|ುತ್ತಿದ್ದೇನೆ)|ಯೋಚಿಸೋಣ|ಪರಿಶೀಲಿಸೋಣ|ಲೆಕ್ಕ\s+ಹಾಕೋಣ"""),
    _pattern("self_correction", 2, "ತಡಿ|ತಾಳಿ|ನಿಲ್ಲಿ|ತಡೆಯಿರಿ|ನಿರೀಕ್ಷಿಸಿ", r"(?:ತಡಿ|ತಡೆಯಿರಿ|ತಾಳಿ|ನಿಲ್ಲಿ|ನಿರೀಕ್ಷಿಸಿ)[,.…]", "sentence"),
    _pattern("instructions", 2, "ವಾಕ್ಯ|ಮಾರ್ಕ್‌ಡೌನ್|ಮಾರ್ಕ್ಡೌನ್|ಸೂಚನೆ|ನಿಯಮ", r"""
        (?:ಒಂದರಿಂದ\s+ಮೂರು|ಒಂದು\s+ಅಥವಾ\s+ಎರಡು|1-3)\s+(?:(?:ಚಿಕ್ಕ|ಸಣ್ಣ)\s{1,4}){0,3}ವಾಕ್ಯ|ಮಾರ್ಕ್‌?ಡೌನ್\s+(?:ಬೇಡ|ಇಲ್ಲದೆ|ಬಳಸಬಾರದು)|(?:ಸೂಚನೆ|ನಿಯಮ)\S{0,40}\s{1,4}(?:ಪ್ರಕಾರ|ಹೇಳುತ್ತ)"""),
)  # fmt: skip

# ------------------------------------------------------------------------------------------ the look-up

_LETTERS: Final = bytes(byte if chr(byte) in string.ascii_lowercase else 0x20 for byte in range(256))
"""What `bytes.translate` makes blanks of all bytes with that are no small letters."""
_FILLERS: Final = (
    r"okay|ok|so|first|next|then|now|also|but|and|or|hmm+|wait|therefore|thus|oh|no|alright|right|well|actually|ah|good|"
    r"let's\ see|let\ me\ see|let\ me\ think|let's\ think"
)
# Sentence marks and line breaks, then list, bold and quotation marks, then filler words.
_START: Final = re.compile(
    rf"""(?:\A|[.!?:…;\n।]|,\ (?=(?:so|but|and|then)\ )|\b(?:since|because|as|if)\ [^.!?\n]{{3,50}},\ )
         [\s>#*_•\-\d.()"“'\[]*(?:(?:{_FILLERS})[\s,.!…—-]+)*\Z""",
    re.VERBOSE,
)
_LONGEST_START: Final = 60  # characters before a match that are looked at
_LONGEST_OPENING: Final = 200  # characters in which a pattern for the start of a text is looked for


def _is_ascii(pattern: LeakPattern) -> bool:
    return all(word.isascii() for need in pattern.needs for word in need)


def _index() -> dict[str, list[tuple[frozenset[str], LeakPattern]]]:
    """Every alternative need by its longest word."""
    index: dict[str, list[tuple[frozenset[str], LeakPattern]]] = {}
    for pattern in filter(_is_ascii, PATTERNS):
        for need in pattern.needs:
            index.setdefault(max(sorted(need), key=len), []).append((need, pattern))
    return index


_BY_WORD: Final = _index()
# Patterns without Latin letters are searched as substrings: Kannada attaches endings to words, and
# Chinese has no spaces.
_FOREIGN: Final = tuple(pattern for pattern in PATTERNS if not _is_ascii(pattern))
_INITIALS: Final = {part[0] for pattern in _FOREIGN for need in pattern.needs for part in need}
_MAY_BE_FOREIGN: Final = re.compile(f"[{''.join(sorted(_INITIALS))}]")


def fold(text: str) -> str:
    """The text in lower case with plain apostrophes; it keeps its length, so that positions stay valid."""
    low = text.lower().replace("’", "'")
    if len(low) != len(text):  # the lower case of a few capitals is longer
        low = "".join(c.lower() if len(c.lower()) == 1 else c for c in text).replace("’", "'")
    return low


def candidates(low: str) -> list[LeakPattern]:
    """The patterns that may match a folded text, each once; usually few or none."""
    words = set(low.encode("ascii", "replace").translate(_LETTERS).decode().split())
    chosen = {
        id(pattern): pattern
        for word in _BY_WORD.keys() & words
        for need, pattern in _BY_WORD[word]
        if need <= words
    }
    if _MAY_BE_FOREIGN.search(low):
        for pattern in _FOREIGN:
            if any(part in low for need in pattern.needs for part in need):
                chosen[id(pattern)] = pattern
    return list(chosen.values())


def matches(pattern: LeakPattern, low: str) -> Iterator[tuple[int, int]]:
    """The spans in a folded text where a pattern matches at its required position."""
    end = _LONGEST_OPENING if pattern.where == "text" else len(low)
    for match in pattern.regex.finditer(low, 0, end):
        if _is_at_required_position(pattern, low, match.start()):
            yield match.span()


def _is_at_required_position(pattern: LeakPattern, low: str, start: int) -> bool:
    """Whether a match that starts here is at the pattern's position and not inside a word."""
    before = low[start - 1] if start else ""
    if before.isalnum() and before.isascii() and low[start].isascii():
        return False
    if pattern.where == "anywhere":
        return True
    head = low[max(0, start - _LONGEST_START) : start]
    begins = _START.search(head)
    return begins is not None and (
        pattern.where == "sentence" or (start <= _LONGEST_START and begins.start() == 0)
    )
