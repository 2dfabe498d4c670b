"""What `manners bench --matrix FILE` found of each variant, as JSON and as a table in Markdown. Pure."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from deploy.profiles.matrix import quantile
from deploy.profiles.variants import BenchVariant, Matrix, Weights

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """One request of a load, in seconds since it was sent. `first` and `last`: when the first and the last text came."""

    first: float | None = None
    last: float | None = None
    tokens: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One load. Times in ms, over the requests that did not fail; quantiles are values of the sample.

    `tokens_per_s`: all generated tokens from the first request to the last reply's end; `decode`: the median of a stream's tokens
    after its first, over the time that they took.
    """

    streams: int
    requests: int
    failed: int
    ttft_p50: float | None
    ttft_p99: float | None
    tokens_per_s: float | None
    decode: float | None
    why: str = ""


@dataclass(slots=True, kw_only=True)
class VariantResult:
    """One variant. `left` and `added` are what differs from its profile; `checks` maps a conformance check to "" or why it failed.

    Peaks are in bytes: of the engine's processes, and of the whole GPU above what was used before. `drafts` counts speculated
    tokens and accepted ones. `why`: why it has not started, or has ended early.
    """

    variant: str
    profile: str
    weights: Weights
    args: tuple[str, ...]
    env: Mapping[str, str]
    left: tuple[str, ...]
    added: tuple[str, ...]
    at: str | None = None
    start_s: float | None = None
    build: str | None = None
    numerics: str | None = None
    checks: dict[str, str] = field(default_factory=dict)
    loads: list[LoadFigures] = field(default_factory=list)
    host_peak: int | None = None
    gpu_peak: int | None = None
    drafts: Mapping[str, int] | None = None
    why: str = "not reached"
    log: tuple[str, ...] = ()

    @property
    def passed(self) -> int:
        return sum(not why for why in self.checks.values())


def empty(variant: BenchVariant) -> VariantResult:
    """The result of a variant that was not reached yet."""
    return VariantResult(
        variant=variant.name,
        profile=variant.profile.name,
        weights=variant.weights,
        args=variant.spec.args,
        env=dict(variant.spec.env or ()),
        left=variant.left,
        added=variant.added,
    )


def figures(streams: int, wall_s: float, taken: Sequence[TimedRequest]) -> LoadFigures:
    """The figures of one load."""
    good = [one for one in taken if not one.why and one.first is not None]
    first = [one.first * 1000 for one in good if one.first is not None]
    rates = [
        (one.tokens - 1) / (one.last - one.first)
        for one in good
        if one.first is not None and one.last is not None and one.last > one.first and one.tokens > 1
    ]
    tokens = sum(one.tokens for one in good)
    return LoadFigures(
        streams=streams,
        requests=len(taken),
        failed=len(taken) - len(good),
        ttft_p50=_rounded(quantile(first, 0.5)),
        ttft_p99=_rounded(quantile(first, 0.99)),
        tokens_per_s=_rounded(tokens / wall_s) if tokens and wall_s > 0 else None,
        decode=_rounded(quantile(rates, 0.5)),
        why=next((one.why for one in taken if one.why), ""),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def as_json(matrix: Matrix, host: Mapping[str, Any], results: Sequence[VariantResult]) -> dict[str, Any]:
    """Everything, as plain values."""
    table = matrix.table
    load = {"prompt": table.prompt, "reply": table.reply, "vocabulary": table.vocabulary}
    return {
        "title": table.title,
        "about": table.about,
        "host": dict(host),
        "load": load,
        "variants": [asdict(one) for one in results],
    }


def host_facts(gpu: str, cores: int | None) -> dict[str, Any]:
    """Where it runs."""
    return {
        "gpu": gpu,
        "cores": cores,
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


# -------------------------------------------------------------------------------------------- table


def markdown(matrix: Matrix, host: Mapping[str, Any], results: Sequence[VariantResult]) -> str:
    """The table, one line a variant, and below it what is not right."""
    shapes = matrix.table.loads
    titles = ["variant", "profile", "start, s"]
    for shape in shapes:
        titles += [f"TTFT at {shape.streams}, p50/p99 ms", f"tokens/s at {shape.streams}"]
    titles += ["host / GPU, GiB", "drafts taken", "checks"]
    where = host["gpu"] if host["gpu"] != "none" else f"{host['cores']} cores of {host['machine']}"
    head = [
        f"{matrix.table.title}. {matrix.table.about}",
        "",
        f"{where}. Prompts of {matrix.table.prompt} random tokens, replies of {matrix.table.reply}.",
        "",
        _line(titles),
        _line(["---"] * len(titles)),
    ]
    rows = [_line(_cells(one, [shape.streams for shape in shapes])) for one in results]
    return "\n".join([*head, *rows, *_notes(results)]) + "\n"


def _cells(one: VariantResult, streams: Sequence[int]) -> list[str]:
    profile = one.profile + ("*" if one.left or one.added else "")
    cells = [one.variant, profile, _number(one.start_s, 1)]
    by_streams = {load.streams: load for load in one.loads}
    for count in streams:
        load = by_streams.get(count)
        cells += (
            ["-", "-"]
            if load is None
            else [
                f"{_number(load.ttft_p50, 0)} / {_number(load.ttft_p99, 0)}",
                _number(load.tokens_per_s, 0) + (f" ({load.failed} failed)" if load.failed else ""),
            ]
        )
    cells.append(f"{_gib(one.host_peak)} / {_gib(one.gpu_peak)}")
    cells.append(f"{one.drafts['accepted']} of {one.drafts['drafted']}" if one.drafts else "-")
    cells.append(f"{one.passed} of {len(one.checks)}" if one.checks else "not run")
    return cells


def _notes(results: Sequence[VariantResult]) -> list[str]:
    notes = [""]
    for one in results:
        changes = [f"without {', '.join(f'`{word}`' for word in one.left)}"] if one.left else []
        changes += [f"with `{' '.join(one.added)}`"] if one.added else []
        if changes:
            notes.append(f"* {one.variant}: {one.profile} {', '.join(changes)}.")
        if one.numerics:
            notes.append(f"* {one.variant} computes with {one.numerics} ({one.build or 'unknown build'}).")
        if one.why:
            notes.append(f"* {one.variant}: {_short(one.why)}")
        notes += [f"* {one.variant}, {name}: {_short(why)}" for name, why in one.checks.items() if why]
        notes += [
            f"* {one.variant}, {load.streams} at once: {_short(load.why)}" for load in one.loads if load.why
        ]
    return notes


def _short(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "…"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / GIB:.1f}"
