"""Counts the work that code does, in steps that are the same on every machine.

The code under test is compiled once more with a counter in it: every call, loop turn and operation
on text counts one step, and whatever C does for it counts the characters that it may touch: a
join, a slice, a search, a comparison, a decoder. So a second look at what was accumulated shows
whether Python or C takes it, and no clock is read. Only what is passed lazily to C (a `map`) is
not seen. Regular expressions count their span here; how often they backtrack is counted by
`pattern_steps`, which runs them as `re` does, one step at a time.
"""

import ast
import builtins
import operator
import re
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinMethodType, ModuleType
from typing import Any

sre: Any = import_module("re._constants")  # private, and typeshed knows neither
sre_parser: Any = import_module("re._parser")

COUNTED = ("app.stream.", "app.api.")
_NOT_COUNTED = ("app.api.messages_request", "app.api.responses_request", "app.api.reading",
                "app.api.embeddings")  # fmt: skip
"""Requests are read by pydantic, once, and pydantic looks for the modules of its models."""

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_SETS = (dict, set, frozenset)
_COPIES = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_CONSTANT = frozenset({
    "append", "pop", "popleft", "get", "add", "discard", "items", "values", "keys", "isinstance", "len", "type",
    "iter", "next", "id", "getattr", "setattr", "callable", "min", "max", "clear", "start", "end", "span", "bool",
    "bisect_right", "bisect_left", "setdefault", "issubclass", "hash", "ord", "chr", "abs", "any", "all",
})  # fmt: skip
"""What takes no longer for a larger argument, or only as long as the counted iterator that it is given."""
_OF_NO_COST = _CONSTANT & {*vars(builtins)}
_BUILT_IN = (BuiltinMethodType, type(re.compile("").match))
"""Two types: some methods that are written in C are of the second."""


_MULTILINE, _IGNORECASE, _DOTALL = (int(flag) for flag in (re.MULTILINE, re.IGNORECASE, re.DOTALL))
"""As plain numbers: `&` of an enumeration's members would be a fifth of the time of all tests of patterns."""

_GLANCE = 64
"""Steps after which a failing match is taken to read all there is."""


class _HaveSizes(dict[type, bool]):
    def __missing__(self, kind: type) -> bool:
        found = self[kind] = issubclass(kind, _SIZED)
        return found


_HAS_SIZE = _HaveSizes()


def size(value: Any) -> int:
    """How many characters or entries an operation on this may touch."""
    return len(value) if _HAS_SIZE[type(value)] else 0


class Counter:
    """What counted code reports to."""

    def __init__(self) -> None:
        self.steps = 0

    def tick(self) -> bool:
        """What costs nothing more: one turn of a comprehension, say. Loops and functions count theirs in place."""
        self.steps += 1
        return True

    def made(self, value: Any) -> Any:
        """A value that was copied together."""
        self.steps += 1 + size(value)
        return value

    def item(self, value: Any, key: Any) -> Any:
        """One item; a group of a match is a copy."""
        found = value[key]
        self.steps += 1 + (size(found) if isinstance(value, re.Match) else 0)
        return found

    def iadd(self, left: Any, right: Any) -> Any:
        """`left += right`: in place where that can be."""
        result: Any = operator.iadd(left, right)  # type: ignore[no-untyped-call]  # typeshed leaves its arguments bare
        self.steps += 1 + size(right if result is left else result)
        return result

    def equal(self, left: Any, right: Any) -> bool:
        """`==`."""
        length = size(left)
        self.steps += 1 + (length if length and length == size(right) else 0)
        return bool(left == right)

    def contained(self, left: Any, right: Any) -> bool:
        """`in`."""
        self.steps += 1 + (0 if isinstance(right, _SETS) else size(right))
        return left in right

    def call(self, function: Any, *args: Any) -> Any:
        """A call: our own code counts itself, anything else what it may touch."""
        self.steps += 1
        result = function(*args)
        if type(function) in _BUILT_IN:  # most
            if function.__name__ not in _CONSTANT:
                self.steps += _cost(function, args, result)
        elif "__work__" not in getattr(function, "__globals__", ()):
            self.steps += _cost(function, args, result)
        return result

    def call_by_name(self, function: Any, *args: Any, **named: Any) -> Any:
        """One with arguments by name."""
        self.steps += 1
        result = function(*args, **named)
        if "__work__" not in getattr(function, "__globals__", ()):
            self.steps += _cost(function, args, result)
        return result


def _cost(function: Any, args: tuple[Any, ...], result: Any) -> int:
    name = getattr(function, "__name__", "")
    if name in _CONSTANT:  # most
        return 0
    if isinstance(function, type):
        return size(result) if function in _COPIES else 0
    owner = getattr(function, "__self__", None)
    if isinstance(owner, re.Pattern) and name in ("match", "search", "fullmatch"):
        start = args[1] if len(args) > 1 else 0
        end = min(args[2], len(args[0])) if len(args) > 2 else len(args[0])
        if result is None and name == "match":  # most fail within a few characters
            steps = _glanced(_matcher(owner), args[0][start : start + _GLANCE])
            return steps if steps < _GLANCE else int(end) - start
        return int(end if result is None else result.end()) - start
    if name in ("find", "index") and isinstance(owner, str | bytes | bytearray):
        start = args[1] if len(args) > 1 else 0
        end = min(args[2], len(owner)) if len(args) > 2 else len(owner)
        return int(end if result < 0 else result) - start
    if name == "rfind" and isinstance(owner, str | bytes | bytearray):
        return len(owner) - max(int(result), int(args[1]) if len(args) > 1 else 0)
    if name in ("startswith", "endswith"):
        return sum(map(size, args[0])) if isinstance(args[0], tuple) else size(args[0])
    if name in ("extend", "update"):
        return sum(map(size, args))
    return size(owner) + sum(map(size, args)) + size(result)


class _Instrument(ast.NodeTransformer):
    """Puts the counter into functions; module and class bodies run once and stay as they are."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [_tick(), *(self._inside(line) for line in node.body)]
        return node

    def _inside(self, node: ast.stmt) -> ast.stmt:
        return _Body().visit(node)  # type: ignore[no-any-return]


class _Body(_Instrument):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, _tick())
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, _tick())
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs.insert(0, _work("tick"))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        if isinstance(node.func, ast.Name) and node.func.id in _OF_NO_COST:
            return ast.BoolOp(ast.And(), [_work("tick"), node])
        call = _work("call_by_name" if node.keywords else "call", node.func, *node.args)
        call.keywords = node.keywords
        return call

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return (
            self._made(node)
            if isinstance(node.op, ast.Add | ast.Mod | ast.Mult)
            else self.generic_visit(node)
        )

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return self._made(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        return node  # its format_spec is a JoinedStr that must stay one

    def visit_List(self, node: ast.List) -> ast.AST:
        spread = any(isinstance(item, ast.Starred) for item in node.elts)
        return self._made(node) if spread and isinstance(node.ctx, ast.Load) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        if isinstance(node.slice, ast.Slice):
            return self._made(node)
        self.generic_visit(node)
        return _work("item", node.value, node.slice)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.op, ast.Add):
            return self.generic_visit(node)
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        return ast.Assign([self.visit(node.target)], _work("iadd", self.visit(read), self.visit(node.value)))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = type(node.ops[0]).__name__
        if len(node.ops) > 1 or name not in ("In", "NotIn", "Eq", "NotEq"):
            return node
        made = _work("contained" if name in ("In", "NotIn") else "equal", node.left, node.comparators[0])
        return ast.UnaryOp(ast.Not(), made) if name.startswith("Not") else made

    def _made(self, node: ast.expr) -> ast.AST:
        self.generic_visit(node)
        return _work("made", node)


def _work(method: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("__work__", ast.Load()), method, ast.Load()), list(args), [])


def _tick() -> ast.stmt:
    steps = ast.Attribute(ast.Name("__work__", ast.Load()), "steps", ast.Store())
    return ast.AugAssign(steps, ast.Add(), ast.Constant(1))


class Counted:
    """Modules of ours, compiled with one counter in them. `counted("gates.reply.sse").SSEDecoder`."""

    def __init__(self) -> None:
        self.counter = Counter()
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def __call__(self, name: str) -> Any:
        """The counted module of this name."""
        if name not in self._modules:
            spec = find_spec(name)
            assert spec is not None and spec.origin is not None
            module = self._modules[name] = ModuleType(name)
            vars(module).update(__builtins__=self._builtins, __work__=self.counter, __file__=spec.origin)
            exec(_compiled(spec.origin), vars(module))
        return self._modules[name]

    def steps(self, run: Callable[[], object]) -> int:
        """How many steps `run` takes."""
        before = self.counter.steps
        run()
        return self.counter.steps - before

    def _import(self, name: str, *args: Any, **named: Any) -> Any:
        if name.startswith(COUNTED) and name not in _NOT_COUNTED:
            return self(name)
        return builtins.__import__(name, *args, **named)


@cache
def _compiled(path: str) -> Any:
    tree = _Instrument().visit(ast.parse(Path(path).read_text("utf-8")))
    return compile(ast.fix_missing_locations(tree), path, "exec")


# Regular expressions, run one step at a time.


@lru_cache(1 << 17)
def _glanced(matcher: "_Matcher", text: str) -> int:
    """Steps of a match at a place; the texts of a test look alike at most of their places."""
    return matcher.steps_of("match", text, _GLANCE)


def pattern_steps(pattern: re.Pattern[Any], method: str, text: str, limit: int) -> int:
    """Steps that a backtracking matcher takes for `pattern.method(text)`; `limit` if they are more."""
    return _matcher(pattern).steps_of(method, text, limit)


_MATCHERS: dict[int, "_Matcher"] = {}


def _matcher(pattern: re.Pattern[Any]) -> "_Matcher":
    """By identity: a pattern's own hash is computed anew each time, from all of its code."""
    if id(pattern) not in _MATCHERS:
        _MATCHERS[id(pattern)] = _Matcher(pattern)
    return _MATCHERS[id(pattern)]


class _Limit(Exception):
    pass


Then = Callable[[int], int]
"""What follows a match that ended here: the end of all of it, or NO."""
Step = Callable[[int, Then], int]
"""A part of a pattern, tried at a place."""
NO = -1


class _Matcher:
    """`re`'s algorithm on its own parse tree: depth first, one alternative after the other.

    Each node becomes a function that is given its place and what follows. One step is counted for each node that is
    tried, for each end of a sequence, and for each turn of a repeat.
    """

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self.pattern = pattern  # kept, as its identity is a key
        self.flags = pattern.flags
        self.text, self.chars, self.size, self.limit, self.steps = "", [""], 0, 0, 0
        self._start = self._sequence(list(sre_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))

    def steps_of(self, method: str, text: str, limit: int) -> int:
        """Steps of one call of the pattern's method; at most the limit."""
        self.text, self.size, self.limit, self.steps = text, len(text), limit, 0
        self.chars = [*text, ""]  # behind the text stands what no node takes
        then = self._at_the_end if method == "fullmatch" else _anywhere
        at, depth = 0, sys.getrecursionlimit()
        sys.setrecursionlimit(max(depth, _DEEPEST))
        try:
            while at <= self.size:
                end = self._start(at, then)
                if method in ("match", "fullmatch") or (end != NO and method == "search"):
                    break
                at = max(end, at + 1)
        except _Limit:
            pass
        finally:
            sys.setrecursionlimit(depth)
        return min(self.steps, limit)

    def _at_the_end(self, end: int) -> int:
        return end if end == self.size else NO

    def _count(self) -> None:
        """One step, where work may multiply."""
        self.steps += 1
        if self.steps > self.limit:
            raise _Limit

    def _sequence(self, nodes: list[Any]) -> Step:
        def end(at: int, then: Then) -> int:
            self.steps += 1
            return then(at)

        step: Step = end
        for op, argument in reversed(nodes):
            step = self._node(op, argument, step)
        return step

    def _node(self, op: Any, argument: Any, follow: Step) -> Step:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, nodes = argument
            return self._repeat(op, low, high, nodes, follow)
        if op is sre.BRANCH:
            return self._branch(argument[1], follow)
        if op is sre.SUBPATTERN:
            return self._group(self._sequence(list(argument[3])), follow)
        if op is sre.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(argument)), follow)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._look(op, argument, follow)
        if op in (sre.AT, sre.GROUPREF):
            return self._place(op, argument, follow)
        takes = _Takes(op, argument, self.flags)

        def one(at: int, then: Then) -> int:
            self.steps += 1
            return follow(at + 1, then) if takes[self.chars[at]] else NO

        return one

    def _place(self, op: Any, argument: Any, follow: Step) -> Step:
        def place(at: int, then: Then) -> int:
            self.steps += 1
            # an empty group: no pattern of ours refers to a long one
            return follow(at, then) if op is sre.GROUPREF or self._holds(argument, at) else NO

        return place

    def _group(self, inner: Step, follow: Step) -> Step:
        def group(at: int, then: Then) -> int:
            self.steps += 1
            return inner(at, lambda end: follow(end, then))

        return group

    def _branch(self, branches: list[Any], follow: Step) -> Step:
        """Of the alternatives that begin with a character, those that fail at it are counted and not called."""
        tried = [(_first(nodes, self.flags), self._sequence(list(nodes))) for nodes in branches]
        plans: dict[str, list[tuple[int, Step]]] = {}

        def plan(char: str) -> list[tuple[int, Step]]:
            made: list[tuple[int, Step]] = []
            failed = 0
            for takes, step in tried:
                if takes is None or takes[char]:
                    made.append((failed, step))
                    failed = 0
                else:
                    failed += 1
            return [*made, (failed, lambda at, then: NO)]

        def branch(at: int, then: Then) -> int:
            self._count()

            def behind(end: int) -> int:
                return follow(end, then)

            char = self.chars[at]
            if char not in plans:
                plans[char] = plan(char)
            for failed, step in plans[char]:
                self.steps += failed
                if (end := step(at, behind)) != NO:
                    return end
            return NO

        return branch

    def _atomic(self, inner: Step, follow: Step) -> Step:
        def atomic(at: int, then: Then) -> int:
            self._count()
            ends: list[int] = []

            def every(end: int) -> int:
                ends.append(end)
                return NO

            inner(at, every)
            return follow(ends[0], then) if ends else NO

        return atomic

    def _look(self, op: Any, argument: Any, follow: Step) -> Step:
        direction, nodes = argument
        back = 0 if direction > 0 else nodes.getwidth()[0]
        inner, wanted = self._sequence(list(nodes)), op is sre.ASSERT

        def look(at: int, then: Then) -> int:
            self._count()
            found = at >= back and inner(at - back, _anywhere) != NO
            return follow(at, then) if found is wanted else NO

        return look

    def _repeat(self, op: Any, low: int, high: int, nodes: Any, follow: Step) -> Step:
        if len(nodes) == 1 and nodes[0][0] in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self._repeat_one(op, low, high, _Takes(nodes[0][0], nodes[0][1], self.flags), follow)
        return self._repeat_group(op, low, high, self._sequence(list(nodes)), follow)

    def _repeat_one(self, op: Any, low: int, high: int, takes: "_Takes", follow: Step) -> Step:
        def repeat(at: int, then: Then) -> int:
            self._count()
            most, last, chars = at, min(self.size, at + high), self.chars
            while most < last and takes[chars[most]]:
                most += 1
            self.steps += most - at
            ends = range(at + low, most + 1) if op is sre.MIN_REPEAT else range(most, at + low - 1, -1)
            for end in ends[:1] if op is sre.POSSESSIVE_REPEAT else ends:
                self._count()
                if (found := follow(end, then)) != NO:
                    return found
            return NO

        return repeat

    def _repeat_group(self, op: Any, low: int, high: int, inner: Step, follow: Step) -> Step:
        def repeat(at: int, then: Then) -> int:
            self._count()

            def turn(start: int, count: int) -> int:
                """The turn of this number, and what follows if it comes to nothing."""

                def again(end: int) -> int:
                    return turn(end, count + 1) if end > start and count <= high else NO

                if (end := inner(start, again)) != NO:
                    return end
                return follow(start, then) if count > low else NO

            if op is sre.MIN_REPEAT and low == 0 and (end := follow(at, then)) != NO:
                return end
            return turn(at, 1)

        return repeat

    def _holds(self, where: Any, at: int) -> bool:
        text, size = self.text, self.size
        if where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return at == 0 or (bool(self.flags & _MULTILINE) and text[at - 1] == "\n")
        if where is sre.AT_END_STRING:
            return at == size
        if where is sre.AT_END:
            return at == size or (at == size - 1 and text[at] == "\n") or (
                bool(self.flags & _MULTILINE) and text[at] == "\n")  # fmt: skip
        word = [0 <= i < size and (text[i].isalnum() or text[i] == "_") for i in (at - 1, at)]
        return (word[0] != word[1]) is (where is sre.AT_BOUNDARY)


_DEEPEST = 50_000
"""Calls in one another; each turn of a repeated group takes a few."""


def _anywhere(end: int) -> int:
    return end


def _first(nodes: Any, flags: int) -> "_Takes | None":
    """What the first character of these nodes must be; None if they may begin in another way."""
    op, argument = nodes[0] if len(nodes) else (None, None)
    return _Takes(op, argument, flags) if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN) else None


class _Takes(dict[str, bool]):
    """Whether a node takes a character. It takes none behind the text."""

    def __init__(self, op: Any, argument: Any, flags: int) -> None:
        super().__init__({"": False})
        self._op, self._argument, self._flags = op, argument, flags

    def __missing__(self, char: str) -> bool:
        found = self[char] = self._takes(self._op, self._argument, char)
        return found

    def _takes(self, op: Any, argument: Any, char: str) -> bool:
        if op is sre.LITERAL:
            same = bool(ord(char) == argument)
            return same or (bool(self._flags & _IGNORECASE) and char.lower() == chr(argument).lower())
        if op is sre.NOT_LITERAL:
            return bool(ord(char) != argument)
        if op is sre.ANY:
            return char != "\n" or bool(self._flags & _DOTALL)
        negated = argument[0][0] is sre.NEGATE
        return any(self._in(item, char) for item in argument[negated:]) is not negated

    def _in(self, item: tuple[Any, Any], char: str) -> bool:
        op, argument = item
        if op is sre.RANGE:
            low, high = argument
            folded = {char, *(char.swapcase() if self._flags & _IGNORECASE else "")}
            return any(low <= ord(c) <= high for c in folded)
        if op is sre.CATEGORY:
            kind = str(argument)
            found = char.isdigit() if "DIGIT" in kind else char.isspace() if "SPACE" in kind else (
                char.isalnum() or char == "_")  # fmt: skip
            return found is not ("NOT" in kind)
        return self._takes(op, argument, char)
