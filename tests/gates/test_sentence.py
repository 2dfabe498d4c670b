"""One definition of the first sentence: the gate's and the gateway's."""

from hypothesis import given
from hypothesis import strategies as st

from app.stream.clocks import Clocks
from gates.reply.reply import first_sentence


@given(st.text(alphabet="ab3.!? \n\"')।…", max_size=24))
def test_the_gate_and_the_gateway_know_a_sentences_end_at_the_same_character(said: str) -> None:
    clocks = Clocks(0.0)
    for position, character in enumerate(said, start=1):
        clocks.text(character, float(position))

    assert first_sentence(said) == clocks.first_sentence
