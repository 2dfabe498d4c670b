"""Break the stream core on purpose, one fault at a time, and see that a test notices.

`python -m tests.mutants` copies the core and its tests aside, applies each fault in turn, and fails
if the tests still pass with one of them. Each line is a bug that a real proxy has had. The test that a line names runs
first and alone, and must pass without a fault; if it does not notice, all of the core's tests run, and the line is out of date.
"""

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from tests.scale import UNSHRUNK

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which must occur) becomes `new`, and the test `by` fails."""

    name: str
    by: str
    file: str
    old: str
    new: str


STREAM = "app/stream/"
TESTS = "tests/app/stream"
COST = "test_linear_work.py"
"""Slow, and of cost alone: no mutant is one of cost only."""
MUTANTS = [
    Mutant("a lone CR at a read's end is taken for a line end", "test_sse.py::test_payloads_are_the_same_however_the_bytes_arrive", "sse.py", "self._after_cr = data[-1] == 0x0D", "self._after_cr = False"),
    Mutant("the last event is lost without a blank line", "test_sse.py::test_payloads_are_the_same_however_the_bytes_arrive", "sse.py", '        self._take(b"", payloads)\n        return payloads', "        return payloads"),
    Mutant("a partial line is dropped", "test_sse.py::test_payloads_are_the_same_however_the_bytes_arrive", "sse.py", "            if rest:\n                self._grow(rest)", "            pass"),
    Mutant("lines end at U+2028", "test_sse.py::test_payloads_are_the_same_however_the_bytes_arrive", "sse.py", "lines = data.splitlines()", 'lines = [x.encode("utf-8", "surrogateescape") for x in data.decode("utf-8", "surrogateescape").splitlines()]'),
    Mutant("no hold-back of a partial tag", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "tags.py", "if self.may_become(text, at):\n                    return None, at", "if self.may_become(text, at):\n                    return None, size"),
    Mutant("tags are matched in one case only", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "tags.py", 'r"(?!)", re.IGNORECASE', 'r"(?!)", re.NOFLAG'),
    Mutant("a quoted tag is a tag", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "tags.py", 'elif (text[at - 1] if at else before) != "`":', "elif True:"),
    Mutant("held text is lost at the end", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "            self._take_held()\n        self._release(out)", "            self._take_held()"),
    Mutant("what was held when the stream broke is spoken", "test_manners.py::test_text_that_is_held_when_the_stream_breaks_is_not_heard", "holdback.py", "        if not reason:\n            self._take_held()\n", ""),
    Mutant("the hold-back releases early", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "if self._size > self._limit:", "if self._size > 8:"),
    Mutant("the hold-back ends with the first thought", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "self._size, self._limit = 0, self._policy.held_after", "self._size, self._limit = 0, 0"),
    Mutant("a thought overtakes held text", "test_properties.py::test_what_was_said_is_what_is_heard_on_any_split", "holdback.py", "        if self._held:\n            self._held.append(thought)\n        else:", "        if True:"),
    Mutant("an orphan end tag lets its thought out", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "self._take_back(out, always=True)", "self._release(out)"),
    Mutant("a call within a thought is made", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "elif type(event) is Thought or self._is_native(event):", "else:"),
    Mutant("a reply of which nothing is left is clean", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "holdback.py", "if self._filtered and not self._visible and", "if False and"),
    Mutant("an opening tag opens nothing", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "        if role in _OPENERS:\n            self._open_thought(family_of(match), out)\n        elif", "        if"),
    Mutant("details in a thought end it", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "open_thoughts.py", 'if begins or (role == "element" and family == self.innermost):', "if begins:"),
    Mutant("any details end a thought", "test_manners.py::test_whole_tags_need_no_hold_back", "open_thoughts.py", '(role == "element_end" and family == self.innermost)', 'role == "element_end"'),
    Mutant("a header without its first token is spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            line = self._lost_header(text, line)", "            pass"),
    Mutant("the short way passes a header", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "if not self._rules.json and OF_TEXT.match(text):", "if False:"),
    Mutant("an element with a tool's name is spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            line = self._tool_element(text, line)", "            pass"),
    Mutant("half of a pair that is mentioned is heard", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "self._elements[block.key] = self._elements.get(block.key, 0) + 1", "pass"),
    Mutant("a call in a fence in a dropped one is made", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "        if not self._fences.inside:\n            return False\n", "        return False\n"),
    Mutant("the rest of an interrupted call is heard", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            self._block = InterruptedCall(", "            self._close_block(INTERRUPTED, out) or InterruptedCall("),
    Mutant("a thought in an interrupted call is heard", "test_manners.py::test_a_broken_call_is_silent_on_any_cut_without_a_hold_back", "interrupted_call.py", "        self._rest.begin(", "        (lambda raw: None)("),
    Mutant("the rest of an interrupted call without its end is heard", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "interrupted_call.py", "return not self.block.is_broken and _BEHIND", "return False and _BEHIND"),
    Mutant("half a tag in a thought before a native call is lost", "test_manners.py::test_a_broken_call_is_silent_on_any_cut_without_a_hold_back", "segmenter.py", "                self._parted = _HalfTag(self._take_held())\n", "                self._take_held()\n"),
    Mutant("reasoning in a tag is heard", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "said = match[0] if is_begun_in_thought else own", "said = match[0] if True else own"),
    Mutant("reasoning ends a thought in the text", "test_manners.py::test_a_broken_call_is_silent_on_any_cut_without_a_hold_back", "segmenter.py", "self._suspended = self._open if goes_on else None", "self._suspended = None"),
    Mutant("what follows a native call completes no tag", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            self._parted, self._held = _HalfTag(held), \"\"\n        else", "            self._held = \"\"\n        else"),
    Mutant("code behind a special token is heard", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "            if self._is_special:\n                return self._drop(body, out)\n", ""),
    Mutant("what is not seen is the body of a call", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "        space, body = blanks[0], text[blanks.end() :]", "        space, body = blanks[0].strip(), text.lstrip()"),
    Mutant("a call in a thought in a dropped one is made", "test_manners.py::test_a_call_in_a_thought_behind_a_broken_one_is_none", "calls.py", "is_inner = bool(self._open) or self._is_inner(match, opens)", "is_inner = self._is_inner(match, opens)"),
    Mutant("a line end in a thought in dropped text ends that text", "test_manners.py::test_in_a_thought_in_a_call_that_is_none_nothing_ends_that_call", "dropped_text.py", "                if not was_open:\n", "                if True:\n"),
    Mutant("a tag that began before a value was no call is lost", "test_manners.py::test_in_a_thought_in_a_call_that_is_none_nothing_ends_that_call", "react_calls.py", "            self._dropped.begin(scan.text(0, scan.size))\n            return", "            return"),
    Mutant("a value that is whole and no call ends a thought in it", "test_manners.py::test_in_a_thought_in_a_call_that_is_none_nothing_ends_that_call", "bare_calls.py", "self.done = not self._drop(out).is_thinking", "self._drop(out)"),
    Mutant("behind a thought in a dropped line the rest of it is dropped", "test_manners.py::test_behind_a_thought_in_a_call_that_is_none_that_call_goes_on_or_ends", "react_calls.py", "self.done = end >= 0 or not own", "self.done = end >= 0"),
    Mutant("a doubt that reading again begins is never ended", "test_manners.py::test_a_call_in_a_thought_behind_a_broken_one_is_none", "segmenter.py", "            self._read(rest, out)\n            self._end_doubt(out)", "            self._read(rest, out)"),
    Mutant("words in a line of their own between tags are spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "if kind == \"prose\" and self._apart and self._of_line and self._wrapped:", "if False:"),
    Mutant("thoughts do not nest", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "open_thoughts.py", "self._runs[-1] = (family, count + 1)", "pass"),
    Mutant("any closing tag ends any thought", "test_manners.py::test_no_closing_tag_of_another_family_opens_the_mouth", "open_thoughts.py", "if not is_own and not (is_alone and", "if not is_own and not (True or"),
    Mutant("a closing tag ends the thoughts inside its own, too", "test_manners.py::test_no_closing_tag_of_another_family_opens_the_mouth", "open_thoughts.py", "is_own = family == innermost", "is_own = any(family == opened for opened, _ in self._runs)"),
    Mutant("in a nested thought the names of families are mixed up", "test_manners.py::test_no_closing_tag_of_another_family_opens_the_mouth", "open_thoughts.py", "is_alone = len(self._runs) == count == 1", "is_alone = True"),
    Mutant("a thought that ends by a name of its kind swallows the answer", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "open_thoughts.py", "is_alone = len(self._runs) == count == 1", "is_alone = False"),
    Mutant("the header of an answer ends any thought", "test_manners.py::test_whole_tags_need_no_hold_back", "open_thoughts.py", "if any(kind_of_family(opened) != kind for opened, _ in self._runs):", "if False:"),
    Mutant("a tag split over two fields is spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "if match is None and self._tags.may_become(joined):", "if False:"),
    Mutant("a closing tag in the reasoning field stays", "test_manners.py::test_an_answer_in_the_reasoning_field_is_heard_without_its_thought", "segmenter.py", "            out.append(Retract(field=True))\n", "            self._ponder('</think>', out)\n"),
    Mutant("a call before a foreign closer is made", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            if role in (\"close\", \"final\"):\n                # Of", "            if False:\n                # Of"),
    Mutant("a closing tag in an argument ends the thought", "test_manners.py::test_wherever_it_is_cut", "thought_calls.py", "            self._slashes, self._tail, self._empty = 0, \"\", \"\"\n            return True", "            return False"),
    Mutant("one in an element of a call ends the thought", "test_manners.py::test_wherever_it_is_cut", "thought_calls.py", "self._element, self._depth, self._state = name, 1, ThoughtCall._in_element", "pass"),
    Mutant("one in quotes as HTML writes them ends the thought", "test_manners.py::test_wherever_it_is_cut", "thought_calls.py", "self.over = not (is_quote and self._wants_item)", "self.over = True"),
    Mutant("one in a function without a tag ends the thought", "test_manners.py::test_wherever_it_is_cut", "thought_calls.py", 'if text[at] == "{" or last.isalnum() or last == "_":', 'if text[at] == "{":'),
    Mutant("one in a parameter ends the thought", "test_manners.py::test_wherever_it_is_cut", "thought_calls.py", "        return not self.over\n\n    # Each", "        return False\n\n    # Each"),
    Mutant("a thought that broke off in a call hides the answer", "test_manners.py::test_wherever_it_is_cut", "segmenter.py", "            if self._thought_call is not None and self._thought_call.inside:\n                self._read(", "            if False:\n                self._read("),
    Mutant("a line end does not end an argument", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "thought_calls.py", 'self.over = kind == "line"', "self.over = False"),
    Mutant("a thought in the text that never ends makes the reasoning an answer", "test_manners.py::test_reasoning_beside_a_thought_in_the_text_is_no_answer", "holdback.py", "            self._told_apart = True\n", "            pass\n"),
    Mutant("reasoning in the middle of a call in a thought is taken for an argument", "test_manners.py::test_reasoning_may_begin_in_the_middle_of_a_call_in_a_thought", "segmenter.py", "            if not field and self._thought_call", "            if self._thought_call"),
    Mutant("an engine ends a thought in an argument", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            if not field and self._thought_call is not None and self._thought_call.inside:\n                self._begin_doubt(\"field\")", "            if False:\n                self._begin_doubt(\"field\")"),
    Mutant("an argument in doubt is held without a bound", "test_manners.py::test_what_is_held_of_an_argument_that_may_hold_a_closing_tag_is_bounded", "thought_calls.py", "begin, least = at, min(end, at + MAX_CALL_CHARS - self._size)", "begin, least = at, end"),
    Mutant("newlines before the first word are spoken", "test_manners.py::test_the_first_word_goes_the_short_way_and_newlines_before_it_are_left_out", "segmenter.py", 'not (self._field or event.text.startswith(("\\r", "\\n")))', "not self._field"),
    Mutant("the first word is not said", "test_manners.py::test_the_first_word_goes_the_short_way_and_newlines_before_it_are_left_out", "segmenter.py", "self._said, self._strip = True, False", "self._strip = False"),
    Mutant("newlines behind a thought are spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "        self._state, self._strip = Segmenter._in_speech, True\n        if", "        self._state = Segmenter._in_speech\n        if"),
    Mutant("what may have been a tag is lost", "test_manners.py::test_the_end_of_prose_is_no_half_tag", "segmenter.py", "            self._say(held, out)\n        else:", "            pass\n        else:"),
    Mutant("an event overtakes the segmenter's held text", "test_manners.py::test_half_a_tag_before_a_call_or_a_thought_is_no_speech", "segmenter.py", "            out = self._interrupt()\n            if type", "            out = []\n            if type"),
    Mutant("a native call ends a thought in dropped text", "test_manners.py::test_a_native_call_in_a_thought_in_a_call_that_is_none_does_not_end_that_thought", "segmenter.py", "elif block is None or block.is_thinking:", "elif block is None:"),
    Mutant("an orphan end of a call is spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            out.append(Dropped(\"\"))\n            self._last", "            self._say(match[0], out)\n            self._last"),
    Mutant("a call that nobody asked for is handed on", "test_manners.py::test_reasoning_beside_a_call_that_is_dropped_is_no_answer", "bare_calls.py", "    if call.name not in rules.tools and rules.strips_unasked:", "    if False:"),
    Mutant("the engine's own call of no tool is handed on", "test_manners.py::test_reasoning_beside_a_call_that_is_dropped_is_no_answer", "segmenter.py", "repeats, is_asked = event == self._unasked, event.name in rules.tools", "repeats, is_asked = event == self._unasked, True"),
    Mutant("JSON without a tag is spoken", "test_call_forms.py::test_with_tools_a_call_is_a_call_in_every_form", "segmenter.py", "        if bracket < cut:\n", "        if False:\n"),
    Mutant("JSON that was asked for is taken for a call", "test_call_forms.py::test_where_json_was_asked_for_json_is_the_answer", "segmenter.py", "        if self._rules.json:\n", "        if False:\n"),
    Mutant("JSON in a fence is taken for a call", "test_call_forms.py::test_in_a_fence_and_without_tools_it_is_an_example", "segmenter.py", "        elif self._fences.inside:\n            self._say(text[0], out)\n            return text[1:]\n", ""),
    Mutant("a call in a fence is no example without tools", "test_call_forms.py::test_in_a_fence_and_without_tools_it_is_an_example", "segmenter.py", "(ends or not self._rules.tools)", "bool(ends)"),
    Mutant("the short way passes JSON", "test_call_forms.py::test_with_tools_a_call_is_a_call_in_every_form", "segmenter.py", "        return self._other is not None or BRACKET.search(text) is not None", "        return False"),
    Mutant("JSON in the middle of a line is spoken", "test_call_forms.py::test_a_call_behind_words_in_its_line_is_one", "segmenter.py", "            self._follow(text[followed:at])\n            return at", "            if self._begins_line(text, at):\n                return at"),
    Mutant("what is talked about is a call", "test_call_forms.py::test_prose_code_and_other_json_stay_text_to_the_letter", "bare_calls.py", "        if not rest or rest[0] in _LINE_ENDS or", "        if True or"),
    Mutant("a line end behind an engine's own call hides the next one", "test_call_forms.py::test_behind_an_engines_own_call_a_line_begins", "segmenter.py", "                self._swallow = True\n                self._begin_line()", "                self._swallow = True"),
    Mutant("JSON that was no call is lost", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "bare_calls.py", "        raw = \"\".join(self._raw)\n        self.plain = ", "        raw = \"\"\n        self.plain = "),
    Mutant("a call by a tool's name alone is spoken", "test_call_forms.py::test_a_call_behind_words_in_its_line_is_one", "segmenter.py", "else name in tools and MAY_CALL.match(text, found.end())", "else False"),
    Mutant("a call in ReAct's form is spoken", "test_call_forms.py::test_a_call_in_reacts_form_is_one", "segmenter.py", "self._looks_for_actions = self._looks_for_names and not", "self._looks_for_actions = False and not"),
    Mutant("the short way passes a tool's name", "test_call_forms.py::test_the_name_of_a_tool_that_begins_its_line_makes_a_call", "segmenter.py", "if self._looks_for_names and self._tool_name(text, len(text)) < len(text):", "if False:"),
    Mutant("a tool's name in prose is a call", "test_call_forms.py::test_a_call_behind_words_in_its_line_is_one", "named_calls.py", '(tools.may_become(name) if name == head else name in tools)', 'True'),
    Mutant("JSON that may be a call is held without a bound", "test_call_forms.py::test_what_is_held_of_json_that_may_be_a_call_is_bounded", "bare_calls.py", "LONGEST_BARE = 1 << 16", "LONGEST_BARE = 1 << 30"),
    Mutant("escaped tags are text", "test_manners.py::test_half_a_tag_at_the_end_of_a_reply_is_no_speech", "tags.py", 'f"(?:[<\\uff1c]|{_LT})"', 'f"(?:[<\\uff1c])"'),
    Mutant("an escaped tag is not held back", "test_manners.py::test_half_a_tag_at_the_end_of_a_reply_is_no_speech", "tags.py", 'f"(?:{whole}|{_PARTS[atom]})" if atom in _PARTS else whole', "whole"),
    Mutant("white space before a call is shown", "test_call_forms.py::test_white_space_waits_for_the_first_word", "holdback.py", "            self._blank.append(event)\n            return\n", "            pass\n"),
    Mutant("prose loses its tag", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", "            self._say(block.literal, out)", "            pass"),
    Mutant("a dropped block is spoken", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "        self._state = self._in_dropped\n        return body", "        self.done = True\n        return body"),
    Mutant("a dropped block is not counted", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "        out.append(Dropped())\n        self._call = None", "        self._call = None"),
    Mutant("an end tag in a string ends a dropped block", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", "        if self._quoted and not (self._line_start or self._open):\n            return None\n", ""),
    Mutant("a call in a fence is made", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "calls.py", 'if kind == "broken" or (kind != "xml" and self._fenced):', 'if kind == "broken":'),
    Mutant("a number goes out before its end", "test_jsonscan.py::test_only_what_cannot_change_any_more_is_certain", "jsonscan.py", "if not self._escape and self._scalar < 0 and not self._is_high:", "if not self._escape:"),
    Mutant("braces in strings count", "test_jsonscan.py::test_valid_json_is_complete_at_its_last_character_and_its_members_are_found", "jsonscan.py", "                if self._in_string:\n", "                if self._in_string and text[at] not in '{}':\n"),
    Mutant("a parameter keeps its newlines", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "xmlcall.py", '.removeprefix("\\n").removesuffix("\\n")', ""),
    Mutant("a typed parameter stays text", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "xmlcall.py", "self._tools.encode(self.name, self._key, value)", "json.dumps(value)"),
    Mutant("a close does not go through the later stages", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "pipeline.py", "[*self._through(self.segmenter.close()), *self._normalized(self.holdback.close())]", "self._normalized(self.holdback.close())"),
    Mutant("a stream without a finish reason is clean", "test_manners.py::test_text_that_is_held_when_the_stream_breaks_is_not_heard", "pipeline.py", 'return self._break("the engine\'s stream ended without a finish_reason", "upstream_truncated")', "pass"),
    Mutant("empty arguments stay empty", "test_wire_cases.py::test_a_caller_gets_what_is_right_on_any_split", "call_normalizer.py", "[CallArguments(self._choice, self._count - 1, rest)] if rest else []", "[]"),
    Mutant("a call ends with stop", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "call_normalizer.py", "if self._count and reason in", "if False and reason in"),
    Mutant("[DONE] follows an error", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "encode.py", "out.append(error_frame(event.message, event.code))", "out += [error_frame(event.message, event.code), DONE]"),
    Mutant("the short way forgets the tools", "test_manners.py::test_held_to_its_end_nothing_leaks_on_any_cut", "segmenter.py", 'if "`" in text or "~" in text or "\\n" in text:', "if False:"),
    Mutant("the role frame stops the clock", "test_clocks.py::test_each_clock_ends_at_its_own_event", "chunks.py", "        if said.content:\n", "        if said.content is not None:\n"),
    Mutant("null goes out as it came", "test_hostile_replies.py::test_no_arguments_are_an_empty_object_before_anything_else", "call_normalizer.py", 'return "" if "null".startswith(self._seen) else', "return"),
    Mutant("words go out inside a call", "test_hostile_replies.py::test_no_arguments_are_an_empty_object_before_anything_else", "call_normalizer.py", "self._waiting.append(event)\n        return []", "return [event]"),
    Mutant("calls are not counted", "test_hostile_replies.py::test_a_reply_has_so_many_calls_and_no_more", "call_normalizer.py", "if self._count == MAX_CALLS:", "if False:"),
    Mutant("another choice is heard", "test_hostile_replies.py::test_a_malformed_chunk_is_that_error_and_no_other", "chunks.py", "if choice.index != 0:", "if False:"),
    Mutant("a deep call is read on", "test_hostile_replies.py::test_nesting_has_one_bound", "jsonscan.py", "if len(self._stack) >= MAX_DEPTH:", "if False:"),
    Mutant("what was whole before a fault is lost", "test_hostile_replies.py::test_a_limit_does_not_depend_on_the_cut_and_loses_nothing_before_it", "sse.py", "            error.payloads = payloads\n", ""),
    Mutant("arguments that were encoded twice go unchecked at the end", "test_hostile_replies.py::test_arguments_that_were_encoded_twice_are_checked_at_the_end_too", "hermes.py", "            self._check()\n        elif", "            pass\n        elif"),
    Mutant("half of a surrogate pair goes out", "test_hostile_replies.py::test_what_nobody_could_read_makes_no_valid_call", "jsonscan.py", "if (0xDC00 <= unit < 0xE000) is not self._is_high:", "if False:"),
    Mutant("a number that is no double goes out", "test_hostile_replies.py::test_what_nobody_could_read_makes_no_valid_call", "jsonscan.py", "        if _is_out_of_range(scalar):", "        if False:"),
]  # fmt: skip


Outcome = Literal["caught", "caught elsewhere", "SURVIVED"]
QUIETLY = (
    "-q",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:schemathesis",
    "-p",
    "no:xdist",
    "--hypothesis-profile",
    UNSHRUNK,
)

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.collected"])
"""Each fault has a process of its own, forked from one that has collected the tests already: most of the time that a
run of one test takes."""


def outcome(mutant: Mutant | None) -> Outcome:
    """What the tests make of a fault, in a fresh process. Without a fault it is "SURVIVED" if the tests that the mutants
    name pass."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("app", TESTS):
            shutil.copytree(ROOT / part, copy / part)  # with what is compiled already
        (copy / "tests/app/__init__.py").touch()
        for path in [*(ROOT / "tests").glob("*.py"), ROOT / "pyproject.toml"]:
            shutil.copy(path, copy / path.relative_to(ROOT))
        if mutant is None:
            named = sorted({f"{TESTS}/{one.by}" for one in MUTANTS})
            return "SURVIVED" if _passes(copy, *named) else "caught"
        target = copy / STREAM / mutant.file
        text = target.read_text("utf-8")
        if mutant.old not in text:
            raise RuntimeError(f"mutant {mutant.name!r}: {mutant.file} no longer holds its line")
        target.write_text(text.replace(mutant.old, mutant.new, 1), "utf-8")
        if not _passes(copy, f"{TESTS}/{mutant.by}"):
            return "caught"
        return "SURVIVED" if _passes(copy, TESTS, f"--ignore={TESTS}/{COST}") else "caught elsewhere"


def _passes(folder: Path, *tests: str) -> bool:
    """Whether they do, in this process, over the copy in the folder. What lies below `app` has no fault and stays."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("app", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    importlib.import_module("tests.looped").ENOUGH = 1  # type: ignore[attr-defined]  # one row that fails is enough
    with redirect_stdout(StringIO()) as said:
        code = pytest.main(["-x", *QUIETLY, *tests])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{tests[0]} cannot be run: {said.getvalue()}")
    return code == pytest.ExitCode.OK


def main() -> int:
    """Try every mutant; the exit code is the number of survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--tests-pass", action="store_true", help="do not ask whether they do without a fault"
    )
    is_known = parser.parse_args().tests_pass
    found: Counter[Outcome] = Counter()
    with CONTEXT.Pool(2, maxtasksperchild=1) as pool:
        outcomes = pool.imap(outcome, [*([] if is_known else [None]), *MUTANTS])
        if not is_known and next(outcomes) != "SURVIVED":
            raise SystemExit("a test that a mutant names fails without a fault: mend that first")
        for mutant, came in zip(MUTANTS, outcomes, strict=True):
            found[came] += 1
            print(f"{came:16}  {mutant.file:18} {mutant.name}", flush=True)
    print(f"{len(MUTANTS) - found['SURVIVED']} of {len(MUTANTS)} faults caught")
    return found["SURVIVED"]


if __name__ == "__main__":
    sys.exit(main())
