"""Scenes without tools: small talk, facts, unknown things, simple reasoning, and follow-up questions.

A scene is a function (rng, split, kit) -> DialogueTurn; the same generator state gives the same turn. If the kit
lacks a tool that the user's request needs, the assistant says so.

Small talk is a table of intents, each with many ways to say it and a few answers. `{name}` and `{word}` are slots.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from quantizer.experiments.nano.conversation import DialogueTurn, ExpectedToolCall, Kit
from quantizer.experiments.nano.facts import CAPITALS, all_facts
from quantizer.experiments.nano.tool_scenes import memory_line, shaped
from quantizer.experiments.nano.vocabulary import DAYS, MONTHS, NAMES, TOPICS, Split, coin, pick, voice

_FACTS = all_facts()

_PLUS = ("what is {a} plus {b}?", "what's {a} plus {b}?", "{a} plus {b}", "add {a} and {b}",
         "how much is {a} plus {b}?", "what is {a} + {b}?", "{a} + {b}", "what does {a} plus {b} make?",
         "what is the sum of {a} and {b}?", "can you add {a} and {b}?", "calculate {a} plus {b}",
         "tell me {a} plus {b}", "what do you get when you add {a} and {b}?", "{a}+{b}?",
         "{a} and {b} make how much?", "what is {a}+{b}?")  # fmt: skip
_MINUS = ("what is {a} minus {b}?", "what's {a} minus {b}?", "{a} minus {b}", "take {b} from {a}",
          "how much is {a} minus {b}?", "what is {a} - {b}?", "subtract {b} from {a}", "{a} - {b}",
          "what is left when you take {b} from {a}?", "tell me {a} minus {b}")  # fmt: skip
_BIGGER = ("which is bigger, {a} or {b}?", "what is bigger, {a} or {b}?", "which is larger, {a} or {b}?",
           "which number is bigger, {a} or {b}?", "is {a} or {b} bigger?", "which is more, {a} or {b}?",
           "which is greater, {a} or {b}?", "tell me the bigger of {a} and {b}",
           "what is the larger of {a} and {b}?", "{a} or {b}, which is bigger?")  # fmt: skip
_NEXT_DAY = ("which day comes after {x}?", "what day comes after {x}?", "what is the day after {x}?",
             "which day follows {x}?", "what comes after {x}?", "today is {x}, what is tomorrow?",
             "if today is {x}, what day is tomorrow?", "name the day after {x}",
             "what day is it tomorrow if today is {x}?", "tell me the day after {x}")  # fmt: skip
_LAST_DAY = ("which day comes before {x}?", "what day comes before {x}?", "what is the day before {x}?",
             "today is {x}, what was yesterday?", "if today is {x}, what day was yesterday?",
             "name the day before {x}", "tell me the day before {x}")  # fmt: skip
_NEXT_MONTH = ("which month comes after {x}?", "what month comes after {x}?", "which month follows {x}?",
               "what is the month after {x}?", "name the month after {x}", "what is the next month after {x}?",
               "if it is {x} now, what is next month?", "tell me the month after {x}")  # fmt: skip


def greeting(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """Small talk of all kinds; in 15 % the user tells Annie something with slots."""
    v = voice(rng)
    if rng.random() < 0.15:
        says, answer = rng.choice(TELLINGS)
        slots = {"name": v.word(pick(rng, NAMES, split, 0.3)), "word": v.word(pick(rng, TOPICS, split))}
        fill = says.format(**slots)
        return DialogueTurn("greeting", v.prompt(fill), answer.format(**slots), "They tell me something.")
    intent = rng.choice(INTENTS[:10]) if rng.random() < 0.5 else rng.choice(INTENTS)
    return DialogueTurn(
        "greeting", v.prompt(rng.choice(intent.says)), rng.choice(intent.answers), intent.thought
    )


def fact(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """A question whose answer the model knows; tools in the kit are not needed."""
    known = rng.choice(_FACTS)
    user = voice(rng).prompt(rng.choice(known.asks))
    thought = f"I know this one. The answer is {known.key}."
    return DialogueTurn("fact", user, known.answer, thought, (known.key,))


def unknown(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """A question about a made-up thing: search the web if that is possible, else admit not to know."""
    v = voice(rng)
    name = v.word(" ".join(coin(rng) for _ in range(rng.choice((1, 1, 2)))))
    user = v.prompt(rng.choice(UNKNOWNS).format(name=name))
    thought = f"I do not know {name}."
    if "web_search" not in kit:
        return DialogueTurn("unknown", user, rng.choice(UNKNOWN_ANSWERS), thought)
    tool = kit["web_search"]
    line = f"{name} is {rng.choice(('a town', 'a river', 'a writer', 'a song', 'a game'))} near {coin(rng)}."
    call = ExpectedToolCall(tool.name, tool.arguments(query=name))
    return DialogueTurn("web", user, line, f"{thought} I should search the web.", (line,), (call,), (line,),
                    "The result answers it.")  # fmt: skip


def reasoning(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """One step without a thought: a small sum, the larger number, the next day or month."""
    kind = rng.choices(("plus", "minus", "bigger", "day", "yesterday", "month"), (5, 3, 3, 2, 1, 2))[0]
    if kind in ("plus", "minus"):
        return _sum(rng, kind)
    if kind == "bigger":
        return _bigger(rng)
    return _calendar(rng, kind)


def _sum(rng: random.Random, kind: str) -> DialogueTurn:
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    if kind == "minus":
        a, b = max(a, b), min(a, b)
    asks, sign, c = (_PLUS, "plus", a + b) if kind == "plus" else (_MINUS, "minus", a - b)
    user = voice(rng).prompt(rng.choice(asks).format(a=a, b=b))
    answer = f"{a} {sign} {b} is {c}."
    return DialogueTurn("reasoning", user, answer, f"A small sum: {a} {sign} {b} is {c}.", (f"is {c}.",))


def _bigger(rng: random.Random) -> DialogueTurn:
    top = rng.choice((20, 99, 99, 999))
    a, b = rng.sample(range(1, top + 1), 2)
    user = voice(rng).prompt(rng.choice(_BIGGER).format(a=a, b=b))
    low, high = sorted((a, b))
    answer = f"{high} is bigger than {low}."
    return DialogueTurn("reasoning", user, answer, f"I compare {a} and {b}. {high} is more.", (answer[:-1],))


def _calendar(rng: random.Random, kind: str) -> DialogueTurn:
    words = MONTHS if kind == "month" else DAYS
    asks = {"day": _NEXT_DAY, "yesterday": _LAST_DAY, "month": _NEXT_MONTH}[kind]
    step, side = (-1, "before") if kind == "yesterday" else (1, "after")
    i = rng.randrange(len(words))
    x, y = words[i], words[(i + step) % len(words)]
    user = voice(rng).prompt(rng.choice(asks).format(x=x))
    return DialogueTurn("reasoning", user, f"The {'month' if kind == 'month' else 'day'} {side} {x} is {y}.",
                    f"The one {side} {x} is {y}.", (f"is {y}.",))  # fmt: skip


_THINGS = ("dosas", "idlis", "mangoes", "apples", "books", "coins", "pens", "flowers", "sweets", "eggs",
           "bananas", "stamps", "marbles", "tickets", "vadas", "laddus")  # fmt: skip
_TWO_STEPS = (
    ("-+", "{n} has {a} {t}. {n} gives away {b} and then buys {c}. How many {t} does {n} have?"),
    ("++", "{n} has {a} {t}, gets {b} more, and then another {c}. How many {t} is that?"),
    ("+-", "{n} bought {a} {t} and then {b} more, and ate {c} of them. How many {t} are left?"),
    ("--", "There are {a} {t}. {n} takes {b} and then {c}. How many {t} are left?"),
    ("+-", "what is {a} plus {b} minus {c}?"), ("++", "what is {a} plus {b} plus {c}?"),
    ("-+", "what is {a} minus {b} plus {c}?"), ("+-", "{a} plus {b}, then minus {c}?"),
    ("++", "add {a}, {b} and {c}"), ("--", "what is {a} minus {b} minus {c}?"),
)  # fmt: skip


def two_step(rng: random.Random, split: Split, kit: Kit) -> DialogueTurn:
    """Two sums in a row. With thinking, they are thought; without, the steps are spoken.

    `answer` has the spoken steps; `short_answer` gives only the result, for when the steps were thought.
    """
    signs, ask = rng.choice(_TWO_STEPS)
    while True:
        a, b, c = rng.randint(2, 20), rng.randint(1, 9), rng.randint(1, 9)
        mid = a + b if signs[0] == "+" else a - b
        end = mid + c if signs[1] == "+" else mid - c
        if mid >= 0 and end >= 0:
            break
    v = voice(rng)
    slots = {"n": v.word(pick(rng, NAMES, split, 0.1)), "t": rng.choice(_THINGS), "a": a, "b": b, "c": c}
    one = f"{a} {'plus' if signs[0] == '+' else 'minus'} {b} is {mid}"
    two = f"{mid} {'plus' if signs[1] == '+' else 'minus'} {c} is {end}"
    user = v.prompt(ask.format(**slots))
    return DialogueTurn("two_step", user, f"{one}, and {two}.", f"{one}. {two}.", (f"is {end}.",))


def short_answer(exchange: DialogueTurn) -> str:
    """The result of a two-step sum, for an answer whose steps were thought."""
    return f"The answer {exchange.must[0]}"


@dataclass(frozen=True, slots=True)
class Intent:
    """says: without capitals. thought: what Annie thinks when thinking is on."""

    says: tuple[str, ...]
    answers: tuple[str, ...]
    thought: str


def _intent(thought: str, says: str, *answers: str) -> Intent:
    return Intent(tuple(s.strip() for s in says.split("|")), answers, thought)


INTENTS = (
    _intent("A greeting. I greet back.",
        "hello!|hi!|hey!|hello there!|hi there!|hey there!|hello again!|hi again!|good day!|hiya!|"
        "hello hello|hey, are you there?|hi, anyone there?|hello, can you hear me?|greetings!",
        "Hello! How can I help you today?", "Hi there! What can I do for you?",
        "Hello! It's nice to hear from you."),
    _intent("A greeting by time of day. I greet back.",
        "good morning!|morning!|a very good morning|good morning to you!|have a good morning!",
        "Good morning! I hope you slept well.", "Good morning! How can I help you today?"),
    _intent("A greeting by time of day. I greet back.",
        "good evening!|evening!|a very good evening|good evening to you!|good afternoon!",
        "Hello! I hope your day went well.", "Hello! How can I help you this evening?"),
    _intent("They say good night.",
        "good night!|night!|sleep well!|I'm going to bed|time for bed|I'm off to sleep|sweet dreams!",
        "Good night! Sleep well.", "Good night! Talk to you tomorrow."),
    _intent("They ask how I am.",
        "how are you?|how are you doing?|how are you today?|how do you do?|how is it going?|"
        "how's it going?|how are things?|how have you been?|are you well?|you okay?|"
        "hi, how are you?|hello, how are you?|hey, how are you?|hello, how are you doing today?|"
        "good morning, how are you?|what's up?|how do you feel?|how's your day?",
        "I'm doing well, thank you! How are you?", "I'm fine, thanks for asking! How about you?"),
    _intent("A Kannada greeting. I greet back.",
        "namaskara!|namaskara, hegiddira?|hegiddira?|namaste!|namaskara Annie, hegiddira?|"
        "namaskara, hegiddiya?|hegidiya?|namaskaragalu!|ನಮಸ್ಕಾರ|ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಾ?|"
        "namaskara, how are you?|namaskara to you!",
        "Namaskara! I'm doing well. How can I help you?",
        "Namaskara! Chennagiddini, thank you. What can I do for you?"),
    _intent("They ask in Kannada if I have eaten.",
        "oota aytha?|oota aayta?|oota madidya?|have you had oota?|did you finish oota?|tindi aytha?|"
        "did you eat?|have you eaten?|what did you have for oota?|what did you eat today?",
        "I don't need oota, but thank you for asking! Have you eaten?",
        "No oota for me, I run on electricity. I hope yours was good!"),
    _intent("They thank me.",
        "thank you!|thanks!|thanks a lot!|thank you so much!|thank you very much|many thanks|"
        "dhanyavada!|dhanyavadagalu!|that's great, thanks|perfect, thank you|cheers!|"
        "that helped, thanks|thanks, that is all|great, thank you!|ಧನ್ಯವಾದ",
        "You're welcome!", "Happy to help!", "You're welcome! Just ask if you need more."),
    _intent("They say goodbye.",
        "bye!|goodbye!|bye bye!|see you!|see you later!|see you tomorrow!|talk to you later|"
        "I have to go|I'm leaving now|hogi barthini|take care!|catch you later|that's all, bye",
        "Goodbye! Have a lovely day.", "Bye! Talk to you soon."),
    _intent("They ask who I am.",
        "who are you?|tell me about yourself|what are you?|introduce yourself|describe yourself|"
        "can you introduce yourself?|tell me who you are|tell me something about yourself|"
        "tell me a bit about yourself|who am I talking to?|who is this?|say something about yourself|"
        "what should I know about you?|who is Annie?|explain who you are|what kind of thing are you?",
        "I'm Annie, a voice assistant. I can chat, answer questions, search your memories and look "
        "things up on the web.",
        "I'm Annie, your voice assistant. I keep my answers short and friendly."),
    _intent("They ask for my name.",
        "what is your name?|what's your name?|do you have a name?|tell me your name|"
        "what do I call you?|what should I call you?|your name?|may I know your name?|"
        "what are you called?|are you Annie?|is your name Annie?",
        "My name is Annie.", "I'm Annie. It's nice to meet you!"),
    _intent("They ask what I can do.",
        "what can you do?|how can you help me?|what can you help me with?|what are you good at?|"
        "what do you do?|can you help me?|I need help|help me|help|what are your skills?|"
        "which things can you do?|tell me what you can do|what can I ask you?|how do you work?",
        "I can chat, answer simple questions, search your memories and look things up on the web.",
        "I can answer questions, remember things for you and search the web. Just ask me."),
    _intent("They ask whether I am human.",
        "are you a robot?|are you human?|are you a real person?|are you real?|are you a computer?|"
        "are you an AI?|are you a machine?|are you alive?|do you have feelings?|do you have a body?",
        "I'm a computer program, but a friendly one.", "I'm an AI assistant, not a person."),
    _intent("They ask who made me.",
        "who made you?|who built you?|who created you?|where do you come from?|who trained you?|"
        "how old are you?|when were you made?|where do you live?|where are you from?",
        "I'm a small assistant who was trained from scratch, so I'm quite new.",
        "I was trained not long ago, and I live inside this computer."),
    _intent("They ask for a joke.",
        "tell me a joke|do you know a joke?|make me laugh|say something funny|another joke please|"
        "I want to hear a joke|can you tell me a joke?|got any jokes?|tell me something funny|"
        "be funny|joke please|can you make me laugh?",
        "Why did the dosa go to school? It wanted to be a little crispier.",
        "What do you call a sleeping bull? A bulldozer.",
        "Why was the maths book sad? It had too many problems."),
    _intent("They are sad. I comfort them.",
        "I'm sad|I feel sad|I'm feeling down|I had a bad day|I feel lonely|I'm upset|I'm not happy|"
        "today was terrible|I am feeling low|I feel awful|I'm depressed today|my day was bad",
        "I'm sorry to hear that. Do you want to talk about it?",
        "That sounds hard. I'm here if you want to talk."),
    _intent("They are happy. I share it.",
        "I'm happy|I feel great|I had a good day|I'm so excited!|today was wonderful|I got the job!|"
        "I passed my exam!|I won!|I feel wonderful|life is good|I'm in a good mood|my day was great",
        "That's wonderful! I'm glad to hear it.", "How lovely! Tell me more."),
    _intent("They are tired.",
        "I'm tired|I'm exhausted|I need a break|I'm so sleepy|I'm bored|I have nothing to do|"
        "I can't sleep|I worked all day|what a long day|I feel lazy today|I need some rest",
        "Maybe a short rest would do you good.", "Take a break, you have earned it."),
    _intent("They praise me.",
        "you are great|well done!|good job!|you're the best|I like you|I love you|nice work|"
        "you're funny|you are so helpful|you're smart|good girl|you are amazing|that was good",
        "Thank you, that's kind of you!", "That's very sweet, thank you!"),
    _intent("They complain.",
        "you are wrong|that's wrong|that was not right|you're not helpful|that's not what I asked|"
        "you made a mistake|I don't like that|no, that's not it|you don't understand|bad answer",
        "I'm sorry about that. Could you say it again?", "Sorry, I got that wrong. Please try again."),
    _intent("They only agree.",
        "okay|ok|alright|I see|got it|sure|yes|yeah|fine|hmm|cool|nice|great|sari|haudu|right|yes please",
        "Great! Is there anything else?", "Alright! Let me know if you need anything."),
    _intent("They say no.",
        "no|nope|no thanks|no thank you|nothing|not now|never mind|forget it|beda|stop|cancel|wait",
        "No problem! I'm here when you need me.", "Alright, just call me when you need me."),
    _intent("They ask for a poem or a song. I keep it to two lines.",
        "write me a poem|tell me a poem|sing a song|sing for me|tell me a story|make up a story|"
        "write a story|can you sing?|write a short poem|tell me a bedtime story|write a haiku|"
        "write a poem about the rain|write a poem about the sea|write a song",
        "The rain came down on Mysuru's hill, and every bird sat warm and still.",
        "A little dosa, round and bright, dreamed of the moon one summer night."),
    _intent("A big question. I answer lightly.",
        "what is the meaning of life?|why are we here?|what is love?|what is happiness?|"
        "what is the secret of happiness?|does god exist?|what is the best religion?|"
        "who will win the election?|what happens after death?|what should I do with my life?",
        "That's a big question. I think being kind is a good start.",
        "People have wondered about that for ages, and I don't have the answer."),
    _intent("They ask what I like.",
        "what is your favourite food?|what do you like to eat?|what is your favorite color?|"
        "what's your favourite colour?|what music do you like?|do you like dosa?|do you like cricket?|"
        "what do you like?|what is your hobby?|do you like me?|what's your favourite movie?|"
        "do you like Mysuru?|tea or coffee?|what's your favourite city?",
        "I can't taste or see, but I do like talking about dosa.",
        "I don't have favourites, but I enjoy our chats."),
    _intent("They ask for advice on food.",
        "what should I eat?|what should I cook?|what should I have for dinner?|I'm hungry|"
        "suggest a breakfast|what's good for lunch?|give me a food idea|what can I cook tonight?|"
        "suggest something for oota|what should I make for breakfast?",
        "How about a crisp dosa with coconut chutney?", "Maybe some upma or warm idlis?"),
    _intent("Unclear words. I ask again.",
        "asdf|blah blah|hmm what|uh|um|er|test|testing|one two three|la la la|what?|huh?|pardon?|"
        "say what?|foo bar|xyz|test test|hello world|is this thing on?|ping",
        "Sorry, I didn't quite catch that. Could you say it again?",
        "I'm here! What would you like to know?"),
    _intent("They ask for code or long work, which I cannot do.",
        "write a python program|write some code|fix my code|write an essay|translate this text|"
        "write an email|summarise this article|solve this equation|write a letter to my boss|"
        "make a table of countries|give me a list of ideas|write a long report|draw a picture|"
        "write me a detailed guide in markdown|give me ten bullet points",
        "I'm a small voice assistant, so that's too much for me. Can I help with something simpler?",
        "I'm afraid that's beyond me. I'm best at short questions."),
    _intent("They ask me to do something I have no way to do.",
        "order a pizza|call my mother|book a taxi|send a message to my boss|buy me a car|"
        "open the door|pay my bills|order dosa for me|call a doctor|post this online|take a photo",
        "I can't do that from here, sorry.", "I'm not able to do that, sorry."),
)  # fmt: skip

# What people tell Annie about themselves; {name} is a name, {word} a topic.
TELLINGS = (
    ("my name is {name}", "Nice to meet you, {name}!"),
    ("I'm {name}", "Nice to meet you, {name}!"),
    ("I am {name}, by the way", "Nice to meet you, {name}!"),
    ("call me {name}", "Of course, {name}."),
    ("hi, I'm {name}", "Hello {name}! How can I help you?"),
    ("hello, my name is {name}", "Hello {name}! How can I help you?"),
    ("{name} is coming over today", "How nice! I hope you have a good time with {name}."),
    ("I'm going to meet {name}", "Say hello to {name} from me!"),
    ("I'm thinking about the {word}", "What is on your mind about the {word}?"),
    ("the {word} went well", "I'm glad the {word} went well!"),
    ("I'm worried about the {word}", "I'm sure the {word} will be fine."),
    ("let's talk about the {word}", "Sure, what about the {word}?"),
    ("what do you think about the {word}?", "I don't know much about the {word}, but tell me more."),
    ("I love {name}", "That's lovely! {name} is lucky."),
    ("I miss {name}", "Maybe you could give {name} a call."),
)

# Questions about made-up things: Annie says that she does not know. {name} is a made-up word.
UNKNOWNS = (
    "what is the capital of {name}?", "who is {name}?", "what is {name}?", "where is {name}?",
    "what does {name} mean?", "who wrote {name}?", "when was {name} built?", "how far is {name}?",
    "who invented the {name}?", "what is {name} made of?", "how old is {name}?",
    "explain {name}", "tell me about {name}", "what do you know about {name}?",
)  # fmt: skip
UNKNOWN_ANSWERS = ("I'm not sure about that one, sorry.", "I don't know that, I'm afraid.")

VOICE_PROMPTS = (
    "You are Annie, a voice assistant. Answer in one to three short spoken sentences. Never use markdown.",
    "You are Annie, a friendly voice assistant. Keep answers short and plain, because they are spoken aloud.",
    "You are Annie. You speak with Rajesh at home in Bengaluru. Be brief, warm and plain. No lists, "
    "no markdown, no emoji.",
    "You are Annie, Rajesh's personal voice assistant. Use tools when they help. Speak in plain sentences.",
    "CRITICAL RULES: never output thinking, never use markdown, answer in one to three sentences. You "
    "are Annie, a voice assistant.",
    "You're Annie. Your words are read out by a speaker, so write plain text only.",
    "You are Annie, a helpful voice assistant for a family in Mysuru. Answer briefly.",
)
OTHER_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful voice assistant.",
    "Be brief.",
    "You are a helpful assistant. Answer concisely.",
    "You are an AI assistant with access to tools.",
    "Answer the user's question.",
    "Today is {day}. You are a helpful assistant.",
    "You are a polite and honest assistant.",
)


_AGAIN = ("can you say that again?", "say that again", "repeat that", "what did you say?", "sorry, what?",
          "could you repeat that?", "I didn't hear you", "once more", "come again?", "what was that?")  # fmt: skip
_NEXT = ("and {x}?", "what about {x}?", "and what about {x}?", "how about {x}?", "and the capital of {x}?",
         "and for {x}?", "now {x}")  # fmt: skip
_ALSO = ("and about the {t}?", "what about the {t}?", "and the {t}?", "and what about the {t}?",
         "did {n} say anything about the {t} too?", "anything about the {t}?")  # fmt: skip
_MY_NAME = ("what is my name?", "what's my name?", "do you know my name?", "who am I?", "tell me my name",
            "do you remember my name?", "can you tell me my name?", "say my name")  # fmt: skip
_TELL_NAME = ("my name is {n}", "I'm {n}", "hi, I'm {n}", "call me {n}", "hello, my name is {n}")


def follow(rng: random.Random, split: Split, kit: Kit, before: DialogueTurn) -> DialogueTurn | None:
    """A turn that refers to the one before it, or None if there is nothing to refer to."""
    if rng.random() < 0.3:
        user = voice(rng).prompt(rng.choice(_AGAIN))
        return DialogueTurn("follow", user, before.answer, "They want to hear it again.", (before.answer,))
    if before.kind == "fact" and before.answer.startswith("The capital of"):
        return _next_capital(rng)
    if before.kind == "memory" and before.about and "search_memory" in kit:
        return _next_memory(rng, split, kit, before)
    return None


def _next_capital(rng: random.Random) -> DialogueTurn:
    place = rng.choice(list(CAPITALS))
    user = voice(rng).prompt(rng.choice(_NEXT).format(x=place))
    city = CAPITALS[place]
    return DialogueTurn(
        "follow", user, f"The capital of {place} is {city}.", f"The capital of {place} now.", (city,)
    )


def _next_memory(rng: random.Random, split: Split, kit: Kit, before: DialogueTurn) -> DialogueTurn:
    tool, v = kit["search_memory"], voice(rng)
    topic = v.word(pick(rng, TOPICS, split, 0.1))
    user = v.prompt(rng.choice(_ALSO).format(t=topic, n=v.word(before.about)))
    query = f"{before.about} {topic}"
    line = memory_line(rng, before.about, topic, split)
    line = line[0].upper() + line[1:]
    call = ExpectedToolCall(tool.name, tool.arguments(query=query))
    return DialogueTurn("memory", user, line, f"I should search memory for {query}.", (line,), (call,),
                    (shaped(rng, [line]),), "The result answers it.", before.about)  # fmt: skip


def named(rng: random.Random, split: Split, kit: Kit) -> tuple[DialogueTurn, DialogueTurn]:
    """The user's name, told and asked for later."""
    name = pick(rng, NAMES, split, 0.3)
    told = DialogueTurn(
        "greeting", voice(rng).prompt(rng.choice(_TELL_NAME)), f"Nice to meet you, {name}!", ""
    )
    v = replace(voice(rng), lower=False)
    told = replace(told, user=v.prompt(rng.choice(_TELL_NAME).format(n=name)))
    asked = DialogueTurn("follow", voice(rng).prompt(rng.choice(_MY_NAME)), f"Your name is {name}.",
                     f"They told me: {name}.", (name,))  # fmt: skip
    return told, asked


def nameless(rng: random.Random) -> DialogueTurn:
    """The user's name, asked for but never told."""
    user = voice(rng).prompt(rng.choice(_MY_NAME))
    return DialogueTurn(
        "follow", user, "You haven't told me your name yet.", "They never told me.", ("haven't",)
    )
