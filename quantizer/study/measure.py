"""What a model says and how likely it finds things, for one cell of the study: manners, knowledge, and divergence from its BF16.

Replies are greedy. `Reference` holds what the BF16 model said and its distribution there, so that knowledge and manners are
compared at tokens which BF16 found equally hard.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gates.reply.calls import ReplyCall
from gates.reply.reply import Reply
from quantizer.data import conversation as rows
from quantizer.data.batches import batches
from quantizer.data.judge import ExpectedMessage, find_faults
from quantizer.data.render import Renderer
from quantizer.nvfp4 import blocks
from quantizer.ptq.parity import ServedLinear

Kind = Literal["call", "speech", "fact", "prose"]
FACTS: Final = Path(__file__).with_name("facts.json")
PROSE: Final = Path(__file__).parents[2] / "gates" / "corpus" / "real.jsonl.gz"
ANNIE: Final = "You are Annie, a voice assistant. Your words are spoken aloud, so write plain sentences only."
LIMITS: Final = {"call": 72, "speech": 72, "fact": 24}
"""Tokens of a reply; the longest in the held-out conversations has 53."""
PROMPTS: Final = 131072
"""Padded tokens of the prompts that are answered at once."""
MARGINS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Borders of BF16's lead of the likeliest token over the second, in nats: how hard a token is to flip."""
TOKENS: Final = 65536
"""Padded ones in a forward pass."""
_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and a check of the reply's text: what of it is right, by name."""

    kind: Kind
    prompt: Sequence[int]
    check: Callable[[str, bool], dict[str, bool]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with four answers, the right one first."""

    prompt: Sequence[int]
    answers: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Reference:
    """The BF16 model on some texts. kinds, firsts: of each text. hidden: its last states at the learned tokens; head: its output
    matrix. targets: the tokens that it finds likeliest there."""

    texts: Sequence[Sequence[int]]
    starts: Sequence[int]
    kinds: Sequence[Kind]
    hidden: Tensor
    head: Tensor
    targets: Tensor


def turns(renderer: Renderer, path: Path, limit: int | None = None) -> list[Question]:
    """Every turn of the assistant in held-out conversations."""
    found = []
    for row in list(rows.read(path))[:limit]:
        for place, message in enumerate(row.messages):
            if message["role"] == "assistant":
                prompt = renderer.encode(renderer.prompt(row, place))
                calls = [call["function"] for call in message.get("tool_calls") or ()]
                kind: Kind = "call" if calls else "speech"
                found.append(Question(kind, prompt, _called(calls) if calls else _spoken(row.tools)))
    return found


def facts(renderer: Renderer, limit: int | None = None) -> tuple[list[Question], list[Choice]]:
    """Facts to say, and the same ones to choose among four."""
    said, chosen = [], []
    for relation in json.loads(FACTS.read_text("utf-8")):
        answers = list(dict.fromkeys(relation["pairs"].values()))
        for subject, answer in relation["pairs"].items():
            prompt = _asked(renderer, relation["ask"].format(subject))
            place = answers.index(answer)
            others = [answers[(place + step) % len(answers)] for step in (1, 2, 3)]
            stem = relation["stem"].format(subject)
            opened = renderer.encode(f"{stem[0].upper()}{stem[1:]}")
            said.append(Question("fact", prompt, _names(answer)))
            chosen.append(
                Choice([*prompt, *opened], [renderer.encode(f" {one}") for one in (answer, *others)])
            )
    return said[:limit], chosen[:limit]


def prose(renderer: Renderer, count: int = 96) -> list[list[int]]:
    """Other models' ordinary texts."""
    with gzip.open(PROSE, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    long = [text for text in texts if len(text) > 400]
    return [renderer.encode(text)[:192] for text in long[:: max(1, len(long) // count)][:count]]


def round_inputs(x: Tensor, tensor_scale: Tensor) -> Tensor:
    """Inputs [tokens, in] as a W4A4 server reads them."""
    scale = blocks.block_scale(blocks.block_amax(x), tensor_scale)
    return blocks.round_blocks(x, blocks.step(scale, tensor_scale))


@cache
def fastest(device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """`round_inputs` as one kernel, where that can be made and agrees."""
    try:
        fused: Any = torch.compile(round_inputs, dynamic=True)
        x = torch.randn(300, 576, device=device, dtype=torch.bfloat16)
        scale = x.abs().amax().float() / 2688
        differ = float((fused(x, scale) != round_inputs(x, scale)).float().mean())
        print(f"fused rounding differs at {differ:.2e}", flush=True)
        return fused if differ < 1e-4 else round_inputs
    except Exception as error:
        print(f"no fused rounding: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return round_inputs


def speed_up(model: nn.Module) -> nn.Module:
    """Let a served model round its inputs by one kernel."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        rounding = fastest(device)
        for layer in model.modules():
            if isinstance(layer, ServedLinear) and layer.input_scale is not None:
                layer.forward = partial(_forward, layer, rounding)  # type: ignore[method-assign]
    return model


def _forward(layer: ServedLinear, rounding: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    assert layer.input_scale is not None
    return F.linear(rounding(x.flatten(0, -2), layer.input_scale).view_as(x), layer.weight, layer.bias)


@torch.no_grad()
def replies(model: nn.Module, questions: Sequence[Question], renderer: Renderer) -> list[list[int]]:
    """What the model says to each, up to and with its end of turn."""
    device, made = next(model.parameters()).device, {}
    for limit in sorted({LIMITS[one.kind] for one in questions}):
        alike = [i for i, one in enumerate(questions) if LIMITS[one.kind] == limit]
        for group in batches([len(questions[i].prompt) for i in alike], PROMPTS):
            prompts = [questions[alike[place]].prompt for place in group]
            width = max(len(prompt) for prompt in prompts)
            ids = torch.tensor([[renderer.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
            seen = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
            out = model.generate(  # type: ignore[operator]  # transformers'
                input_ids=ids.to(device), attention_mask=seen.to(device), do_sample=False, max_new_tokens=limit,
                eos_token_id=sorted(renderer.ends), pad_token_id=renderer.pad,
            )  # fmt: skip
            for place, line in zip(group, out[:, width:].tolist(), strict=True):
                end = next((at for at, token in enumerate(line) if token in renderer.ends), len(line) - 1)
                made[alike[place]] = line[: end + 1]
    return [made[i] for i in range(len(questions))]


def judged(
    questions: Sequence[Question], said: Sequence[Sequence[int]], renderer: Renderer
) -> dict[str, str]:
    """Of each check a string of 0 and 1, in the order of the questions that have it."""
    found: dict[str, str] = {}
    for question, ids in zip(questions, said, strict=True):
        ended = ids[-1] in renderer.ends
        text = renderer.tokenizer.decode(ids[:-1] if ended else ids)
        for name, right in question.check(text, ended).items():
            found[name] = found.get(name, "") + str(int(right))
    return found


@torch.no_grad()
def chosen(model: nn.Module, choices: Sequence[Choice], pad: int) -> str:
    """Whether the right answer is the likeliest of four, by its mean token; a string of 0 and 1."""
    texts = [[*one.prompt, *answer] for one in choices for answer in one.answers]
    starts = [len(one.prompt) for one in choices for _ in one.answers]
    hidden = states(model, texts, starts, pad)
    head: Any = model.get_submodule("lm_head").weight
    targets = torch.tensor(
        [token for one in choices for answer in one.answers for token in answer], device=hidden.device
    )
    likely = torch.cat([
        F.log_softmax(F.linear(part, head).float(), -1).gather(1, want[:, None])[:, 0]
        for part, want in zip(hidden.split(2048), targets.split(2048), strict=True)
    ]).split([len(answer) for one in choices for answer in one.answers])  # fmt: skip
    means = torch.stack([one.mean() for one in likely]).view(len(choices), -1)
    return "".join(str(int(best == 0)) for best in means.argmax(1).tolist())


@torch.no_grad()
def states(model: nn.Module, texts: Sequence[Sequence[int]], starts: Sequence[int], pad: int) -> Tensor:
    """The last hidden states that foretell each text's tokens from its start on: [all of them, width], in order."""
    device = next(model.parameters()).device
    parts: dict[int, Tensor] = {}
    for group in batches([len(text) for text in texts], TOKENS):
        ids = torch.full((len(group), max(len(texts[i]) for i in group)), pad)
        for row, i in enumerate(group):
            ids[row, : len(texts[i])] = torch.tensor(texts[i])
        # Rows are padded at the right and layers look left, so no mask is needed.
        hidden = model.get_submodule("model")(input_ids=ids.to(device), use_cache=False).last_hidden_state
        for row, i in enumerate(group):
            parts[i] = hidden[row, starts[i] - 1 : len(texts[i]) - 1].clone()
    return torch.cat([parts[i] for i in range(len(texts))])


@torch.no_grad()
def refer(
    model: nn.Module,
    questions: Sequence[Question],
    said: Sequence[Sequence[int]],
    other: Sequence[Sequence[int]],
    pad: int,
) -> Reference:
    """The BF16 model at its own replies, and at other texts."""
    texts = [[*q.prompt, *ids] for q, ids in zip(questions, said, strict=True)] + [
        list(text) for text in other
    ]
    starts = [len(q.prompt) for q in questions] + [1] * len(other)
    kinds: list[Kind] = [*(q.kind for q in questions), *(["prose"] * len(other))]  # type: ignore[list-item]
    hidden = states(model, texts, starts, pad)
    head: Any = model.get_submodule("lm_head").weight
    likeliest = torch.cat([F.linear(part, head).argmax(-1) for part in hidden.split(2048)])
    return Reference(texts, starts, kinds, hidden, head.detach().clone(), likeliest)


@torch.no_grad()
def compared(model: nn.Module, reference: Reference, pad: int) -> dict[str, Any]:
    """Divergence and changed choices, by kind of text and by how hard the token was for BF16; `first`: of each text, how many
    tokens are kept before the first change."""
    hidden = states(model, reference.texts, reference.starts, pad)
    head: Any = model.get_submodule("lm_head").weight
    kl, flip, margin, likely = (
        np.concatenate(part) for part in zip(*_tokens(hidden, head, reference), strict=True)
    )
    lengths = [len(text) - start for text, start in zip(reference.texts, reference.starts, strict=True)]
    ends = np.cumsum(lengths)
    kinds = np.repeat(np.array(reference.kinds), lengths)
    names = np.where(np.isin(np.arange(len(kl)), ends - lengths), np.char.add(kinds, "_first"), kinds)
    out: dict[str, Any] = {"kl": {}, "flips": {}, "by_margin": {}}
    for kind in sorted(set(reference.kinds)):
        texts = [
            slice(end - n, end)
            for end, n, one in zip(ends, lengths, reference.kinds, strict=True)
            if one == kind
        ]
        sums = np.array([[kl[some].sum(), some.stop - some.start] for some in texts])
        out["kl"][kind] = _ratio(sums)
        where = np.digitize(margin, MARGINS)
        out["by_margin"][kind] = [
            [
                int(sum((kinds == kind) & (where == place))),
                int(flip[(kinds == kind) & (where == place)].sum()),
            ]
            for place in range(len(MARGINS) + 1)
        ]
    for name in sorted(set(names)):
        out["flips"][name] = [int((names == name).sum()), int(flip[names == name].sum())]
    parts = [slice(end - n, end) for end, n in zip(ends, lengths, strict=True)]
    out["first"] = [int(np.argmax(np.append(flip[some], True))) for some in parts]
    out["kinds"] = reference.kinds
    out["likely"] = [
        [round(float(likely[some].sum()), 2), round(float(margin[some].min()), 2)] for some in parts
    ]
    return out


def _tokens(hidden: Tensor, head: Tensor, reference: Reference) -> Iterator[tuple[np.ndarray, ...]]:
    """Of each token: divergence, whether another is the likeliest, BF16's margin, and its log-likelihood of its choice."""
    for ours, theirs, target in zip(
        hidden.split(2048), reference.hidden.split(2048), reference.targets.split(2048), strict=True
    ):
        new, old = (
            F.log_softmax(F.linear(x, w).float(), -1) for x, w in ((ours, head), (theirs, reference.head))
        )
        best = old.topk(2, dim=-1).values
        divergence = F.kl_div(new, old, reduction="none", log_target=True).sum(-1)
        found = (divergence, new.argmax(-1) != target, best[:, 0] - best[:, 1], best[:, 0])
        yield tuple(part.cpu().numpy() for part in found)


def _ratio(sums: np.ndarray) -> list[float]:
    """A mean over tokens and its standard error, texts being what was drawn."""
    mean = sums[:, 0].sum() / sums[:, 1].sum()
    spread = np.sqrt(((sums[:, 0] - mean * sums[:, 1]) ** 2).sum()) / sums[:, 1].sum()
    return [round(float(mean), 5), round(float(spread), 5)]


def _called(expected: Sequence[Mapping[str, Any]]) -> Callable[[str, bool], dict[str, bool]]:
    wanted = [(call["name"], call["arguments"]) for call in expected]

    def check(text: str, ended: bool) -> dict[str, bool]:
        made = [(call.name, _object(call.arguments)) for call in _calls(text)]
        named = ended and [name for name, _ in made] == [name for name, _ in wanted]
        return {"tool": named, "exact": named and made == wanted}

    return check


def _spoken(tools: Sequence[Mapping[str, Any]]) -> Callable[[str, bool], dict[str, bool]]:
    def check(text: str, ended: bool) -> dict[str, bool]:
        calls = _calls(text)
        reply = Reply(200, _CALL.sub("", text).strip(), calls=calls, finish_reason="stop", done=True)
        return {"speech": ended and not calls and not find_faults(reply, ExpectedMessage(None, tools))}

    return check


def _names(answer: str) -> Callable[[str, bool], dict[str, bool]]:
    said = re.compile(rf"\b{re.escape(answer)}\b", 0 if len(answer) < 3 else re.IGNORECASE)
    return lambda text, ended: {"said": bool(said.search(text))}


def _calls(text: str) -> tuple[ReplyCall, ...]:
    found = []
    for index, written in enumerate(_CALL.findall(text)):
        call = _object(written) or {}
        found.append(
            ReplyCall(index, f"call_{index}", str(call.get("name", "")), json.dumps(call.get("arguments")))
        )
    return tuple(found)


def _object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _asked(renderer: Renderer, question: str) -> list[int]:
    talk = rows.from_row({"messages": [
        {"role": "system", "content": ANNIE}, {"role": "user", "content": question}, {"role": "assistant", "content": "."}
    ]})  # fmt: skip
    return renderer.encode(renderer.prompt(talk, 2))
