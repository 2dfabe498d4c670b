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
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

sre: Any = import_module("re._constants")  # private, and typeshed knows neither
sre_parser: Any = import_module("re._parser")

COUNTED = ("app.stream.", "app.api.")
_NOT_COUNTED = ("app.api.messages_request", "app.api.responses_request", "app.api.reading",
                "app.api.embeddings")  # fmt: skip
"""Requests are read by pydantic, once, and pydantic looks for the modules of its models."""

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_COPIES = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_CONSTANT = frozenset({
    "append", "pop", "popleft", "get", "add", "discard", "items", "values", "keys", "isinstance", "len", "type",
    "iter", "next", "id", "getattr", "setattr", "callable", "min", "max", "clear", "start", "end", "span", "bool",
    "bisect_right", "bisect_left", "setdefault", "issubclass", "hash", "ord", "chr", "abs", "any", "all",
})  # fmt: skip
"""What takes no longer for a larger argument, or only as long as the counted iterator that it is given."""


_MULTILINE, _IGNORECASE, _DOTALL = (int(flag) for flag in (re.MULTILINE, re.IGNORECASE, re.DOTALL))
"""As plain numbers: `&` of an enumeration's members would be a fifth of the time of all tests of patterns."""

_GLANCE = 64
"""Steps after which a failing match is taken to read all there is."""


def size(value: Any) -> int:
    """How many characters or entries an operation on this may touch."""
    return len(value) if isinstance(value, _SIZED) else 0


class Counter:
    """What counted code reports to."""

    def __init__(self) -> None:
        self.steps = 0

    def tick(self) -> bool:
        """One turn of a loop, or one function entered."""
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

    def compare(self, left: Any, right: Any, name: str) -> bool:
        """`==` and `in`, and their opposites."""
        if name in ("In", "NotIn"):
            self.steps += 1 + (0 if isinstance(right, dict | set | frozenset) else size(right))
            return (left in right) is (name == "In")
        self.steps += 1 + (size(left) if size(left) == size(right) else 0)
        return bool(left == right) is (name == "Eq")

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """A call: our own code counts itself, anything else what it may touch."""
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
            steps = _glanced(owner, args[0][start : start + _GLANCE])
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
        node.body = [ast.Expr(_work("tick")), *(self._inside(line) for line in node.body)]
        return node

    def _inside(self, node: ast.stmt) -> ast.stmt:
        return _Body().visit(node)  # type: ignore[no-any-return]


class _Body(_Instrument):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_work("tick")))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_work("tick")))
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs.insert(0, _work("tick"))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        return ast.Call(_work("call").func, [node.func, *node.args], node.keywords)

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
        return _work("compare", node.left, node.comparators[0], ast.Constant(name))

    def _made(self, node: ast.expr) -> ast.AST:
        self.generic_visit(node)
        return _work("made", node)


def _work(method: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("__work__", ast.Load()), method, ast.Load()), list(args), [])


class Counted:
    """Modules of ours, compiled with one counter in them. `counted("app.stream.sse").SSEDecoder`."""

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
def _glanced(pattern: re.Pattern[Any], text: str) -> int:
    """Steps of a match at a place; the texts of a test look alike at most of their places."""
    return pattern_steps(pattern, "match", text, _GLANCE)


def pattern_steps(pattern: re.Pattern[Any], method: str, text: str, limit: int) -> int:
    """Steps that a backtracking matcher takes for `pattern.method(text)`; `limit` if they are more."""
    nodes = _parsed(pattern)
    machine = _Machine(text, limit, pattern.flags)
    try:
        at = 0
        while at <= len(text):
            ends = machine.run(nodes, 0, at, lambda end: iter([end]))
            end = next((e for e in ends if method != "fullmatch" or e == len(text)), None)
            if method in ("match", "fullmatch") or (end is not None and method == "search"):
                break
            at = max(end or 0, at + 1)
    except _Limit:
        return limit
    return machine.steps


@cache
def _parsed(pattern: re.Pattern[Any]) -> list[Any]:
    return list(sre_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))


class _Limit(Exception):
    pass


class _Machine:
    """`re`'s algorithm on its own parse tree: depth first, one alternative after the other."""

    def __init__(self, text: str, limit: int, flags: int) -> None:
        self.text, self.limit, self.flags, self.steps = text, limit, flags, 0

    def run(
        self, nodes: list[Any], index: int, at: int, then: Callable[[int], Iterator[int]]
    ) -> Iterator[int]:
        """Ends of matches of the nodes from `index` on, followed by `then`."""
        self.steps += 1
        if self.steps > self.limit:
            raise _Limit
        if index == len(nodes):
            yield from then(at)
            return
        op, argument = nodes[index]
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield from self._repeat(op, argument, at, lambda end: self.run(nodes, index + 1, end, then))
        else:
            for end in self._one(op, argument, at):
                yield from self.run(nodes, index + 1, end, then)

    def _one(self, op: Any, argument: Any, at: int) -> Iterator[int]:
        if op is sre.BRANCH:
            for branch in argument[1]:
                yield from self.run(list(branch), 0, at, lambda end: iter([end]))
        elif op is sre.SUBPATTERN:
            yield from self.run(list(argument[3]), 0, at, lambda end: iter([end]))
        elif op is sre.ATOMIC_GROUP:
            yield from [*self.run(list(argument), 0, at, lambda end: iter([end]))][:1]
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from self._look(op, argument, at)
        elif op is sre.AT:
            if self._holds(argument, at):
                yield at
        elif op is sre.GROUPREF:
            yield at  # an empty group: no pattern of ours refers to a long one
        elif at < len(self.text) and self._takes(op, argument, self.text[at]):
            yield at + 1

    def _look(self, op: Any, argument: Any, at: int) -> Iterator[int]:
        direction, nodes = argument
        low, _ = nodes.getwidth()
        start = at if direction > 0 else at - low
        ends = self.run(list(nodes), 0, start, lambda end: iter([end])) if start >= 0 else iter(())
        if (next(ends, None) is not None) is (op is sre.ASSERT):
            yield at

    def _repeat(self, op: Any, argument: Any, at: int, then: Callable[[int], Iterator[int]]) -> Iterator[int]:
        low, high, nodes = argument
        inner = list(nodes)
        if len(inner) == 1 and inner[0][0] in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            yield from self._repeat_one(op, low, high, inner[0], at, then)
        else:
            yield from self._repeat_group(op, low, high, inner, at, then)

    def _repeat_one(
        self, op: Any, low: int, high: int, node: Any, at: int, then: Callable[[int], Iterator[int]]
    ) -> Iterator[int]:
        most = at
        while most < len(self.text) and most - at < high and self._takes(node[0], node[1], self.text[most]):
            most += 1
            self.steps += 1
        ends = range(at + low, most + 1) if op is sre.MIN_REPEAT else range(most, at + low - 1, -1)
        for end in [*ends][: 1 if op is sre.POSSESSIVE_REPEAT else None]:
            self.steps += 1
            if self.steps > self.limit:
                raise _Limit
            yield from then(end)

    def _repeat_group(
        self, op: Any, low: int, high: int, nodes: list[Any], at: int, then: Callable[[int], Iterator[int]]
    ) -> Iterator[int]:
        """Without recursion into Python's own stack for each turn: a stack of iterators."""
        turns: list[tuple[int, Iterator[int]]] = [(at, self.run(nodes, 0, at, lambda end: iter([end])))]
        if op is sre.MIN_REPEAT and low == 0:
            yield from then(at)
        while turns:
            start, ends = turns[-1]
            end = next(ends, None)
            if end is not None and end > start and len(turns) <= high:
                turns.append((end, self.run(nodes, 0, end, lambda e: iter([e]))))
                continue
            if end is None:
                turns.pop()
                if len(turns) >= low:
                    yield from then(start)

    def _holds(self, where: Any, at: int) -> bool:
        text, size = self.text, len(self.text)
        if where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return at == 0 or (bool(self.flags & _MULTILINE) and text[at - 1] == "\n")
        if where is sre.AT_END_STRING:
            return at == size
        if where is sre.AT_END:
            return at == size or (at == size - 1 and text[at] == "\n") or (
                bool(self.flags & _MULTILINE) and text[at] == "\n")  # fmt: skip
        word = [0 <= i < size and (text[i].isalnum() or text[i] == "_") for i in (at - 1, at)]
        return (word[0] != word[1]) is (where is sre.AT_BOUNDARY)

    def _takes(self, op: Any, argument: Any, char: str) -> bool:
        if op is sre.LITERAL:
            same = bool(ord(char) == argument)
            return same or (bool(self.flags & _IGNORECASE) and char.lower() == chr(argument).lower())
        if op is sre.NOT_LITERAL:
            return bool(ord(char) != argument)
        if op is sre.ANY:
            return char != "\n" or bool(self.flags & _DOTALL)
        negated = argument[0][0] is sre.NEGATE
        return any(self._in(item, char) for item in argument[negated:]) is not negated

    def _in(self, item: tuple[Any, Any], char: str) -> bool:
        op, argument = item
        if op is sre.RANGE:
            low, high = argument
            folded = {char, *(char.swapcase() if self.flags & _IGNORECASE else "")}
            return any(low <= ord(c) <= high for c in folded)
        if op is sre.CATEGORY:
            kind = str(argument)
            found = char.isdigit() if "DIGIT" in kind else char.isspace() if "SPACE" in kind else (
                char.isalnum() or char == "_")  # fmt: skip
            return found is not ("NOT" in kind)
        return self._takes(op, argument, char)
