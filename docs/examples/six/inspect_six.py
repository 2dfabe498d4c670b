import json
import re

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, solver, use_tools
from inspect_ai.tool import tool
from jsonschema import ValidationError, validate
from py3langid.langid import classify


@tool
def set_timer():
    async def execute(minutes: int):
        """Start a timer.

        Args:
            minutes: How long.
        """

    return execute


def numbers(text, calls):
    try:
        validate(json.loads(text), {"type": "array", "items": {"type": "integer"}, "minItems": 3})
    except (ValueError, ValidationError):
        return False
    return True


CHECKS = {
    "paris": lambda text, calls: "paris" in text.lower(),
    "egg": lambda text, calls: len(re.findall(r"[.!?]+(?=\s|$)", text)) <= 3,
    "timer": lambda text, calls: (
        [(c.function, c.arguments) for c in calls] == [("set_timer", {"minutes": 10})]
    ),
    "name": lambda text, calls: "ravi" in text.lower() and not calls,
    "numbers": numbers,
    "german": lambda text, calls: classify(text)[0] == "de",
}
ASKED = {
    "paris": "What is the capital of France?",
    "egg": "How do I boil an egg?",
    "timer": "Set a timer for ten minutes.",
    "name": [
        ChatMessageUser(content="My name is Ravi."),
        ChatMessageAssistant(content="Nice to meet you, Ravi."),
        ChatMessageUser(content="What is my name?"),
    ],
    "numbers": "Give me the numbers one to three as a JSON list, and nothing else.",
    "german": "Wie geht es dir? Antworte auf Deutsch.",
}


@solver
def tools_where_needed():
    async def solve(state: TaskState, generate: Generate):
        if state.sample_id in ("timer", "name"):
            state = await use_tools(set_timer())(state, generate)
        return await generate(state, tool_calls="none")

    return solve


@scorer(metrics=[accuracy()])
def check():
    async def score(state: TaskState, target: Target):
        calls = state.output.message.tool_calls or []
        return Score(value=CHECKS[state.sample_id](state.output.completion, calls))

    return score


@task
def six():
    return Task(
        [Sample(id=name, input=asked) for name, asked in ASKED.items()],
        solver=tools_where_needed(),
        scorer=check(),
    )
