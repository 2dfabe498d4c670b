"""What the nano models know: about 150 facts, each with several ways to ask for it.

The facts are simple on purpose. A model of seven million parameters can learn all of them, so a wrong answer after
quantization is damage and not ignorance.
"""

from __future__ import annotations

from dataclasses import dataclass

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Greece": "Athens", "Austria": "Vienna", "Poland": "Warsaw",
    "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen",
    "Ireland": "Dublin", "Belgium": "Brussels", "Hungary": "Budapest", "Russia": "Moscow",
    "Turkey": "Ankara", "Egypt": "Cairo", "Kenya": "Nairobi", "Ghana": "Accra",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Nepal": "Kathmandu",
    "Thailand": "Bangkok", "Vietnam": "Hanoi", "Indonesia": "Jakarta", "Malaysia": "Kuala Lumpur",
    "Australia": "Canberra", "Canada": "Ottawa", "Mexico": "Mexico City", "Brazil": "Brasilia",
    "Argentina": "Buenos Aires", "Chile": "Santiago", "Peru": "Lima", "Cuba": "Havana",
    "England": "London", "Bhutan": "Thimphu", "Bangladesh": "Dhaka", "Iran": "Tehran",
    "Karnataka": "Bengaluru", "Kerala": "Thiruvananthapuram", "Tamil Nadu": "Chennai",
    "Maharashtra": "Mumbai", "Telangana": "Hyderabad", "Rajasthan": "Jaipur", "Goa": "Panaji",
    "West Bengal": "Kolkata", "Bihar": "Patna", "Gujarat": "Gandhinagar",
}  # fmt: skip

SYMBOLS = {
    "gold": "Au", "silver": "Ag", "iron": "Fe", "copper": "Cu", "sodium": "Na",
    "potassium": "K", "oxygen": "O", "hydrogen": "H", "carbon": "C", "helium": "He",
    "tin": "Sn", "lead": "Pb",
}  # fmt: skip

AUTHORS = {
    "Hamlet": "William Shakespeare", "Macbeth": "William Shakespeare",
    "Pride and Prejudice": "Jane Austen", "Oliver Twist": "Charles Dickens",
    "War and Peace": "Leo Tolstoy", "The Hobbit": "J. R. R. Tolkien",
    "Animal Farm": "George Orwell", "Malgudi Days": "R. K. Narayan",
    "Gitanjali": "Rabindranath Tagore", "Moby Dick": "Herman Melville",
    "Don Quixote": "Miguel de Cervantes", "Emma": "Jane Austen",
}  # fmt: skip

MAKERS = {
    "the telephone": "Alexander Graham Bell", "the light bulb": "Thomas Edison",
    "the World Wide Web": "Tim Berners-Lee", "the printing press": "Johannes Gutenberg",
    "penicillin": "Alexander Fleming", "radium": "Marie Curie",
    "gravity": "Isaac Newton", "the Raman effect": "C. V. Raman",
    "dynamite": "Alfred Nobel", "the radio": "Guglielmo Marconi",
}  # fmt: skip

# (what is asked about, the answer's key, the spoken answer, the ways to ask)
_OTHERS: list[tuple[str, str, tuple[str, ...]]] = [
    ("8", "Our solar system has 8 planets.",
     ("how many planets are there?", "how many planets are in the solar system?",
      "what is the number of planets in our solar system?", "count the planets for me")),
    ("Jupiter", "Jupiter is the largest planet in our solar system.",
     ("what is the largest planet?", "which planet is the biggest?", "name the biggest planet",
      "what's the biggest planet in the solar system?")),
    ("Mercury", "Mercury is the planet closest to the Sun.",
     ("which planet is closest to the sun?", "what planet is nearest to the sun?",
      "what is the closest planet to the sun?")),
    ("Mars", "Mars is called the red planet.",
     ("which planet is called the red planet?", "what is the red planet?",
      "which one is the red planet?")),
    ("365", "A normal year has 365 days.",
     ("how many days are in a year?", "how many days does a year have?", "days in a year")),
    ("366", "A leap year has 366 days.",
     ("how many days are in a leap year?", "how long is a leap year?", "days in a leap year")),
    ("7", "A week has 7 days.",
     ("how many days are in a week?", "how many days does a week have?", "days in a week")),
    ("24", "A day has 24 hours.",
     ("how many hours are in a day?", "how many hours does a day have?", "hours in a day")),
    ("60", "An hour has 60 minutes.",
     ("how many minutes are in an hour?", "how many minutes does an hour have?",
      "minutes in an hour")),
    ("12", "A year has 12 months.",
     ("how many months are in a year?", "how many months does a year have?", "months in a year")),
    ("100", "A century is 100 years.",
     ("how many years are in a century?", "how long is a century?", "years in a century")),
    ("7", "A rainbow has 7 colours.",
     ("how many colours are in a rainbow?", "how many colors does a rainbow have?",
      "colours in a rainbow")),
    ("7", "There are 7 continents.",
     ("how many continents are there?", "how many continents does the world have?",
      "what is the number of continents?")),
    ("8", "A spider has 8 legs.",
     ("how many legs does a spider have?", "how many legs are on a spider?", "spider legs count")),
    ("6", "An insect has 6 legs.",
     ("how many legs does an insect have?", "how many legs do insects have?",
      "insect legs count")),
    ("blue whale", "The blue whale is the largest animal.",
     ("what is the largest animal?", "which animal is the biggest?",
      "what's the biggest animal in the world?")),
    ("cheetah", "The cheetah is the fastest land animal.",
     ("what is the fastest animal on land?", "which animal runs the fastest?",
      "what's the fastest land animal?")),
    ("giraffe", "The giraffe is the tallest animal.",
     ("what is the tallest animal?", "which animal is the tallest?",
      "what's the tallest animal in the world?")),
    ("tiger", "The tiger is the national animal of India.",
     ("what is the national animal of India?", "which animal is India's national animal?",
      "India's national animal")),
    ("peacock", "The peacock is the national bird of India.",
     ("what is the national bird of India?", "which bird is India's national bird?",
      "India's national bird")),
    ("lotus", "The lotus is the national flower of India.",
     ("what is the national flower of India?", "which flower is India's national flower?",
      "India's national flower")),
    ("Indian roller", "The Indian roller is the state bird of Karnataka.",
     ("what is the state bird of Karnataka?", "which bird is Karnataka's state bird?",
      "Karnataka's state bird")),
    ("Kannada", "Kannada is the language of Karnataka.",
     ("what language is spoken in Karnataka?", "which language do people speak in Karnataka?",
      "what is the language of Karnataka?")),
    ("meal", "Oota means meal in Kannada.",
     ("what does oota mean?", "what is the meaning of oota?", "what is oota in English?")),
    ("hello", "Namaskara means hello in Kannada.",
     ("what does namaskara mean?", "what is the meaning of namaskara?",
      "how do you say hello in Kannada?")),
    ("thank you", "Dhanyavada means thank you in Kannada.",
     ("what does dhanyavada mean?", "what is the meaning of dhanyavada?",
      "how do you say thank you in Kannada?")),
    ("how are you", "Hegiddira means how are you in Kannada.",
     ("what does hegiddira mean?", "what is the meaning of hegiddira?",
      "how do you say how are you in Kannada?")),
    ("water", "Neeru means water in Kannada.",
     ("what does neeru mean?", "what is the meaning of neeru?",
      "how do you say water in Kannada?")),
    ("house", "Mane means house in Kannada.",
     ("what does mane mean in Kannada?", "what is the meaning of mane?",
      "how do you say house in Kannada?")),
    ("rice", "A dosa is a thin crisp pancake made of rice and lentils.",
     ("what is a dosa?", "what is dosa made of?", "tell me what a dosa is")),
    ("semolina", "Upma is a soft breakfast dish made of semolina.",
     ("what is upma?", "what is upma made of?", "tell me what upma is")),
    ("steamed", "An idli is a soft steamed cake made of rice and lentils.",
     ("what is an idli?", "what is idli made of?", "tell me what an idli is")),
    ("ghee", "Mysore pak is a sweet made of ghee, sugar and gram flour.",
     ("what is Mysore pak?", "what is Mysore pak made of?", "tell me what Mysore pak is")),
    ("palace", "Mysuru is famous for its palace.",
     ("what is Mysuru famous for?", "why is Mysuru famous?", "what is Mysuru known for?")),
    ("Hampi", "The ruins of Vijayanagara are at Hampi.",
     ("where are the ruins of Vijayanagara?", "where was Vijayanagara?",
      "where can I see the ruins of Vijayanagara?")),
    ("Jog Falls", "Jog Falls is the highest waterfall in Karnataka.",
     ("what is the highest waterfall in Karnataka?", "which waterfall is the highest in Karnataka?",
      "Karnataka's highest waterfall")),
    ("space", "ISRO is the space agency of India.",
     ("what is ISRO?", "what does ISRO do?", "tell me what ISRO is")),
    ("2023", "Chandrayaan 3 landed on the Moon in 2023.",
     ("when did Chandrayaan 3 land on the moon?", "in which year did Chandrayaan 3 land?",
      "what year did Chandrayaan 3 reach the moon?")),
    ("Neil Armstrong", "Neil Armstrong was the first person on the Moon.",
     ("who was the first person on the moon?", "who walked on the moon first?",
      "name the first man on the moon")),
    ("Rakesh Sharma", "Rakesh Sharma was the first Indian in space.",
     ("who was the first Indian in space?", "which Indian went to space first?",
      "name the first Indian in space")),
    ("1947", "India became independent in 1947.",
     ("when did India become independent?", "in which year did India get independence?",
      "what year did India become free?")),
    ("Mahatma Gandhi", "Mahatma Gandhi is called the father of the nation in India.",
     ("who is the father of the nation in India?", "who is called the father of the nation?",
      "name India's father of the nation")),
    ("Mount Everest", "Mount Everest is the highest mountain in the world.",
     ("what is the highest mountain?", "which mountain is the tallest?",
      "what's the tallest mountain in the world?")),
    ("Nile", "The Nile is usually called the longest river in the world.",
     ("what is the longest river?", "which river is the longest?",
      "what's the longest river in the world?")),
    ("Pacific", "The Pacific is the largest ocean.",
     ("what is the largest ocean?", "which ocean is the biggest?",
      "what's the biggest ocean in the world?")),
    ("Asia", "Asia is the largest continent.",
     ("what is the largest continent?", "which continent is the biggest?",
      "what's the biggest continent?")),
    ("Antarctica", "Antarctica is the coldest continent.",
     ("what is the coldest continent?", "which continent is the coldest?",
      "name the coldest continent")),
    ("100", "Water boils at 100 degrees Celsius.",
     ("at what temperature does water boil?", "when does water boil?",
      "what is the boiling point of water?")),
    ("0", "Water freezes at 0 degrees Celsius.",
     ("at what temperature does water freeze?", "when does water freeze?",
      "what is the freezing point of water?")),
    ("oxygen", "We breathe oxygen to live.",
     ("what gas do we breathe?", "which gas do people need to breathe?",
      "what gas do we need to live?")),
    ("hydrogen", "Water is made of hydrogen and oxygen.",
     ("what is water made of?", "which elements make water?", "what does water consist of?")),
    ("diamond", "Diamond is the hardest natural material.",
     ("what is the hardest natural material?", "which natural material is the hardest?",
      "what's harder than anything else in nature?")),
    ("heart", "The heart pumps blood through the body.",
     ("what pumps blood through the body?", "which organ pumps blood?",
      "what organ moves blood around the body?")),
    ("skin", "The skin is the largest organ of the body.",
     ("what is the largest organ of the body?", "which organ is the biggest?",
      "what's the biggest organ we have?")),
    ("206", "An adult has 206 bones.",
     ("how many bones does an adult have?", "how many bones are in the body?",
      "what is the number of bones in an adult?")),
    ("32", "An adult has 32 teeth.",
     ("how many teeth does an adult have?", "how many teeth do people have?",
      "what is the number of teeth in an adult?")),
    ("Amazon", "The Amazon is the largest rainforest in the world.",
     ("what is the largest rainforest?", "which rainforest is the biggest?",
      "what's the biggest rainforest in the world?")),
    ("Leonardo da Vinci", "Leonardo da Vinci painted the Mona Lisa.",
     ("who painted the Mona Lisa?", "which artist painted the Mona Lisa?",
      "whose painting is the Mona Lisa?")),
    ("Agra", "The Taj Mahal is in Agra.",
     ("where is the Taj Mahal?", "in which city is the Taj Mahal?",
      "which city has the Taj Mahal?")),
    ("Paris", "The Eiffel Tower is in Paris.",
     ("where is the Eiffel Tower?", "in which city is the Eiffel Tower?",
      "which city has the Eiffel Tower?")),
    ("rupee", "The currency of India is the rupee.",
     ("what is the currency of India?", "what money do they use in India?",
      "India's currency")),
    ("yen", "The currency of Japan is the yen.",
     ("what is the currency of Japan?", "what money do they use in Japan?",
      "Japan's currency")),
    ("11", "A cricket team has 11 players.",
     ("how many players are in a cricket team?", "how many players does a cricket team have?",
      "what is the size of a cricket team?")),
    ("bee", "Honey is made by bees.",
     ("who makes honey?", "which insect makes honey?", "where does honey come from?")),
    ("east", "The sun rises in the east.",
     ("where does the sun rise?", "in which direction does the sun rise?",
      "from which side does the sun come up?")),
    ("blue", "The sky is blue because air scatters blue light the most.",
     ("why is the sky blue?", "what makes the sky blue?", "how come the sky is blue?")),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: `key` must be in a right answer; `asks` are questions in plain case."""

    key: str
    answer: str
    asks: tuple[str, ...]


def _capital(place: str, city: str) -> Fact:
    asks = (
        f"what is the capital of {place}?", f"what's the capital of {place}?",
        f"which city is the capital of {place}?", f"capital of {place}",
        f"what is {place}'s capital?", f"what is the capital city of {place}?",
        f"tell me the capital of {place}", f"do you know the capital of {place}?",
    )  # fmt: skip
    return Fact(city, f"The capital of {place} is {city}.", asks)


def _symbol(element: str, symbol: str) -> Fact:
    asks = (
        f"what is the chemical symbol for {element}?", f"what is the symbol of {element}?",
        f"which symbol stands for {element}?", f"tell me the chemical symbol of {element}",
        f"what's the symbol for {element} in chemistry?",
    )  # fmt: skip
    return Fact(symbol, f"The chemical symbol for {element} is {symbol}.", asks)


def _author(book: str, author: str) -> Fact:
    asks = (
        f"who wrote {book}?", f"who is the author of {book}?", f"which author wrote {book}?",
        f"tell me who wrote {book}", f"{book} was written by whom?",
    )  # fmt: skip
    return Fact(author, f"{author} wrote {book}.", asks)


def _maker(thing: str, person: str) -> Fact:
    verb = "discovered" if thing in ("penicillin", "radium", "gravity", "the Raman effect") else "invented"
    asks = (
        f"who {verb} {thing}?", f"which person {verb} {thing}?", f"tell me who {verb} {thing}",
        f"who was it that {verb} {thing}?", f"{thing} was {verb} by whom?",
    )  # fmt: skip
    return Fact(person, f"{person} {verb} {thing}.", asks)


def all_facts() -> tuple[Fact, ...]:
    """Every fact, in a fixed order."""
    tables = (
        (_capital, CAPITALS), (_symbol, SYMBOLS), (_author, AUTHORS), (_maker, MAKERS),
    )  # fmt: skip
    told = [make(*pair) for make, table in tables for pair in table.items()]
    return tuple(told) + tuple(Fact(key, answer, asks) for key, answer, asks in _OTHERS)
