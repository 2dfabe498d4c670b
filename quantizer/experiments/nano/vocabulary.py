"""The words that fill the slots of dialogues, ways of typing them, and the rule that keeps test prompts out of
training.

Slots for people, topics and places draw from long lists and from names made of syllables, so that a model has to
copy what it reads and cannot memorize a list. One in eight of these words is held out: it occurs in test dialogues
only. In addition, whole prompts are held out by the hash of their text (`split_of`), so that no test prompt was
ever a training prompt, whatever its slots are.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from quantizer.experiments.nano.facts import CAPITALS

Split = Literal["train", "test"]


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return text.split("|")


NAMES = _words(
    "Priya Rajesh Asha Ravi Meera Kiran Lakshmi Suresh Anita Vikram Deepa Arjun Kavya Ganesh Sunita "
    "Mohan Divya Naveen Shanti Prakash Nandini Manju Girish Sneha Harish Rekha Varun Pooja Anand Usha "
    "Tom Anna John Maria David Sarah Peter Emma Daniel Laura Lucas Sofia James Julia Omar Fatima Chen "
    "Yuki Amir Elena Marco Nina Paul Grace Sam Ruth Leo Clara Basavaraj Chaitra Shivu Gowri Appu Amma "
    "Ajji Appa Akka Anna"
)

TOPICS = _phrases(
    "trip|wedding|project|party|garden|car|house|exam|recipe|meeting|budget|school|concert|match|"
    "birthday|holiday|doctor visit|new job|puppy|bicycle|library book|dance class|train ticket|rent|"
    "phone bill|grocery list|dinner plan|temple visit|cricket match|yoga class|interview|report|"
    "presentation|medicine|festival|picnic|flight|hotel|passport|laptop|painting|guitar lesson|"
    "movie night|school fees|road work|bus route|farm|coffee order|dosa batter|oota plan|saree|"
    "mango pickle|house key|water bill|visa|gift|reunion|marathon|book club|piano|fence|roof repair"
)

SUBJECTS = _phrases(
    "ISRO|Chandrayaan|the monsoon|cricket|the elections|electric cars|gold prices|the stock market|"
    "Bengaluru traffic|the metro|solar power|Formula One|the World Cup|coffee prices|the budget|"
    "Mars missions|artificial intelligence|the Olympics|Kannada films|the railways|space telescopes|"
    "onion prices|the rupee|tennis|climate talks|Mysuru Dasara|Hampi Utsav|the heat wave|football|"
    "NASA|the new airport|chess|petrol prices|battery research|tiger counts|the lottery|volcanoes|"
    "quantum computers|the film awards|hockey|robots|the floods|bird flu|tea exports|wind farms|"
    "the Nobel Prize|open source|the census|rocket launches|the tech summit"
)

CITIES = _words(
    "Mysuru Bengaluru Hubballi Mangaluru Udupi Hassan Tumakuru Ballari Shivamogga Hampi Madikeri "
    "Chennai Mumbai Delhi Pune Kochi Hyderabad Kolkata Jaipur Paris London Berlin Tokyo Oslo Madrid "
    "Rome Sydney Toronto Nairobi Cairo Lisbon Vienna Prague Dublin Boston Chicago Seattle Zurich "
    "Singapore Bangkok Dubai Athens Helsinki Lima"
)

ROOMS = _phrases(
    "kitchen|bedroom|living room|bathroom|hall|garden|garage|study|balcony|pooja room|porch|attic"
)

DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("January February March April May June July August September October November December")

ARTISTS = _phrases(
    "Rajkumar|M. S. Subbulakshmi|A. R. Rahman|Lata Mangeshkar|Ravi Shankar|Adele|Mozart|Beethoven|"
    "the Beatles|Coldplay|S. P. Balasubrahmanyam|Bhimsen Joshi|Queen|Bach|Raghu Dixit|Norah Jones"
)

CHORES = _phrases(
    "call the bank|water the plants|buy milk|pay the rent|feed the cat|pick up the laundry|"
    "send the report|book the tickets|take the medicine|charge the phone|clean the kitchen|"
    "soak the rice|iron the saree|renew the passport|wash the car|check the mail|order flowers|"
    "return the library book|make the dosa batter|lock the gate"
)

# Prompts that a new user types first. They are always trained on and never tested.
PINNED = frozenset(
    (
        "hello", "hi", "hey", "hi annie", "hello annie", "hi annie how are you", "how are you",
        "what is the capital of france", "what did priya say about the trip",
        "whats the latest news on isro", "tell me about yourself", "who are you", "namaskara",
        "thank you", "thanks", "bye", "good morning", "what can you do", "what is your name",
    )
)  # fmt: skip
# Words that occur in facts or in the prompts above, so that training always sees them.
_PINNED_WORDS = {
    "Priya", "Rajesh", "Mysuru", "Bengaluru", "trip", "ISRO", "kitchen", "wedding", "Hampi",
    "artificial intelligence", "the stock market", "Sydney", "Dubai",
    "Raghu Dixit", *CAPITALS, *CAPITALS.values(),
}  # fmt: skip

# Everyday words, for meaningless sentences and for the halves of made-up words.
EVERYDAY = _words(
    "about above accident account across action address advice afternoon again against airport album "
    "almost alone already always amount animal answer apartment apple argue arrive article artist asleep "
    "attention aunt average avoid awake baby balance bakery basket battery beach beautiful because become "
    "before behind believe belong between bicycle blanket blossom borrow bottle branch breakfast bridge "
    "bright brother brush bucket build business butter button cabinet camera candle careful carpet castle "
    "catalogue celebrate century certain chair challenge change chapter cheese chicken children chocolate "
    "choose circle citizen climate closet coconut collect college colour comfort common company compare "
    "complain concern condition connect consider contact continue control cookie corner correct cotton "
    "country courage cousin create cricket crowd curtain customer damage danger daughter decide deliver "
    "department describe design develop dictionary different difficult dinner direct discover discuss "
    "distance doctor double dozen drawer dream during early earth economy educate effort eight electric "
    "elephant eleven empty energy engine enough entrance envelope equal escape evening event every exact "
    "example excellent exchange excuse exercise experience explain express factory family famous fashion "
    "fever fifty figure finger finish fisherman flavour flower follow football foreign forest forget "
    "fortune fourteen freedom fresh friend frighten fruit funeral furniture future gather general gentle "
    "ginger glass golden government grammar grateful ground guard guest habit hammer handle happen harbour "
    "headache health heavy height helmet history honest hospital however hundred hungry hurry husband "
    "imagine important improve include increase independent industry inform inquire insect inside "
    "instead instrument interest invite island jacket jasmine jealous jewel journey judge juice jungle "
    "kettle kingdom kitten knife knowledge ladder language laugh lawyer leather lemon letter level light "
    "listen little local machine magazine manage market marriage master material matter measure member "
    "memory message middle million minister mirror mistake modern moment money monkey monsoon mother "
    "mountain museum music mystery narrow nature necessary needle neighbour network nothing notice number "
    "object ocean offer office onion opinion orange orchestra ordinary outside oxygen package palace "
    "paper parent partner passenger patient pattern peaceful pencil pepper perfect person picture pillow "
    "planet plastic pleasant pocket police popular potato powder prepare president pressure prison private "
    "probably problem produce programme promise protect proud public purple purpose quality quarter "
    "question quick quiet railway raise rather reason receive record reduce regular remember repair "
    "repeat request rescue respect rhythm rubber safety sample science scissors season second secret "
    "sentence serious servant service seventeen several shadow shelter shoulder silence simple singer "
    "sister situation sleeve smooth soldier special spoon spread spring square station steam stomach "
    "straight strange street strength student subject succeed sudden sugar suggest summer surprise sweater "
    "symbol system tailor talent teacher temple terrible theatre thick thirty thousand through thunder "
    "together tomato tomorrow tongue tractor traffic travel treasure trouble trust twelve umbrella uncle "
    "understand uniform university until useful valley vegetable vehicle village violin visitor voice "
    "volume waiter wander warning water weather wedding weekend welcome whisper whole window winter "
    "wonder worker yellow yesterday young zebra"
)

_ONSETS = _words("b bh ch d dh f g gr h j k kr l m n p pr r s sh st t th tr v w y z")
_VOWELS = _words("a a e i o u aa ai ee oo")
_CODAS = ["", "", "", "n", "r", "l", "m", "sh", "t", "k", "v", "d"]


def normalise(text: str) -> str:
    """The identity of a prompt: its words and digits, without case and punctuation."""
    return " ".join(re.sub(r"[^\w\s]", "", text.lower()).split())


def _hash_byte(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def split_of(prompt: str) -> Split:
    """The side of the split that a prompt belongs to; one in ten is a test prompt."""
    text = normalise(prompt)
    return "test" if text not in PINNED and _hash_byte(text) < 26 else "train"


@cache
def is_held_out(word: str) -> bool:
    """Whether a word is one of the one in eight that never occur in training."""
    return word not in _PINNED_WORDS and _hash_byte("open word: " + word.lower()) < 32


def coin(rng: random.Random) -> str:
    """A made-up name: syllables (Shaarun), or the halves of two words (Airgrammar).

    The halves matter: a tokenizer splits an unknown word into pieces of known ones, so the model must be able to
    repeat such pieces.
    """
    if rng.random() < 0.5:
        first, second = rng.choice(EVERYDAY), rng.choice(EVERYDAY)
        return (first[: rng.randint(2, 6)] + second[-rng.randint(2, 6) :]).capitalize()
    syllables = (
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.choice((2, 2, 3)))
    )
    return "".join(syllables).capitalize()


def pick(rng: random.Random, words: Sequence[str], split: Split, coined: float = 0.0) -> str:
    """A word for a slot: from the list, or with probability `coined` a made-up one.

    Training draws from words that are not held out; a test takes a held-out word half the time.
    """
    wanted = rng.random() < 0.5 if split == "test" else False
    if rng.random() < coined:
        while is_held_out(word := coin(rng)) != wanted:
            pass
        return word
    return rng.choice([word for word in words if is_held_out(word) == wanted] or words)


_LEADS = (
    "so", "and", "now", "then", "well", "okay", "by the way", "quick question", "listen", "right", "oh", "one more thing",
    "wait", "just", "tell me", "I'd like to know", "let me ask",
)  # fmt: skip
_TAILS = (
    "for me",
    "then",
    "now",
    "again",
    "if you can",
    "quickly",
    "for us",
    "this time",
    "one more time",
    "in all",
)


def spoken(rng: random.Random, plain: str) -> str:
    """A sentence as it is said: one in three with words in front of it, behind it, or both."""
    roll = rng.random()
    if roll < 0.25:
        text = plain if plain.startswith(("I ", "I'")) else plain[0].lower() + plain[1:]
        lead = rng.choice(_LEADS)
        plain = f"{lead}{rng.choice((', ', ' '))}{text}"
    if 0.15 < roll < 0.35:
        end = plain[-1] if plain[-1] in "?." else ""
        plain = f"{plain.removesuffix(end)} {rng.choice(_TAILS)}{end}"
    return plain


_FRONTS = ("Annie, ", "Hey Annie, ", "Hi Annie, ", "Okay Annie, ", "Please ", "So, ", "Tell me, ", "Annie ")


@dataclass(frozen=True, slots=True)
class Voice:
    """A way of typing, the same for a whole prompt and its slots."""

    lower: bool
    front: str
    stop: bool
    please: bool

    def word(self, text: str) -> str:
        """A slot's text as it appears in the prompt."""
        return text.lower() if self.lower else text

    def prompt(self, plain: str) -> str:
        """A sentence as a prompt; `I` and slots keep their capitals unless everything is in lower case."""
        text = plain if self.stop else plain.rstrip("?!.")
        if self.please and not text.endswith("!"):
            end = text[-1] if text[-1] in "?." else ""
            text = text.removesuffix(end) + " please" + end
        text = self.front + text
        return text.lower() if self.lower else text[0].upper() + text[1:]


def voice(rng: random.Random) -> Voice:
    """A random way of typing: mostly correct; sometimes in lower case, without punctuation, or addressed to Annie."""
    front = rng.choice(_FRONTS) if rng.random() < 0.2 else ""
    return Voice(rng.random() < 0.2, front, rng.random() < 0.75, rng.random() < 0.05)
