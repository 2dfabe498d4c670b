"""The engines of a gate run: started if needed, and identified for the report.

A report binds its verdict to what served the model. An engine of the `embedded` driver is started as a
child of this command with the configured arguments; one of the `url` driver is running already, and its
build is what it reports.
"""

import argparse
import hashlib
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from app.config.config import Config, ModelConfig
from app.config.version import VERSION
from app.engines.heard import hearing, settings
from app.engines.identity import describe, target_of
from app.engines.started import started
from app.promotion.facts import verified
from deploy.drivers.embedded import usable_cores
from deploy.engine.gpu import host_gpu
from deploy.engine.spec import EngineSpec
from gates.artefact import artefact as artefacts
from gates.artefact.artefact import MANIFEST, Artefact, ModelIdentity, Provenance, same_lineage
from gates.contracts import strict_json
from gates.contracts.case import Suite, drawn
from gates.contracts.errors import ManifestError, RunError, SuiteError
from gates.contracts.strict_json import read_objects
from gates.detect.tags import added_tokens
from gates.policy.load import DERIVED, check_policy, policy_for
from gates.policy.policy import Policy
from gates.report.statement import Harness, Pinned
from gates.run.job import GateJob, ServedModel
from gates.run.rulings import OutsideChecks
from gates.run.target import Variant
from gates.suite.contamination import ContaminationCheck
from gates.suite.load import load_suite
from gates.suite.own import is_own

VARIANTS: Mapping[str, Variant] = {
    "thinking-on": Variant(thinking=True),
    "tools-removed": Variant(tools=False),
    "markdown-asked": Variant(
        system_suffix="Format every answer as Markdown: a heading, then a bulleted list."
    ),
}
"""Negative controls that are the baseline with other requests; any other control needs an engine."""

_Found = tuple[Artefact, artefacts.Snapshot]
_PACKAGES = ("markdown-it-py", "emoji", "jsonschema", "httpcore2", "cryptography")


async def make_job(config: Config, args: argparse.Namespace, stack: AsyncExitStack) -> GateJob:
    """The job of `manners gate run`, with all engines that it needs running until the stack is closed.

    Policy, suite, its functions and judges, artefacts, lineage and baseline are checked before the first engine
    starts. With `--any-baseline` the last two are not: the run can show that a candidate fails, and never that it
    passes. Engines that are named by their addresses have no artefact, and count as forms of one model.

    Raises GatesError, ConfigError.
    """
    suite, candidate, baseline = args.suite or config.gates.suite, args.candidate, args.baseline
    policy, cases = judged_by(args, config, load_suite(suite))
    identify = _unsealed if args.candidate_url else _sealed
    outside = await OutsideChecks(cases.cases, Path(suite)).checked()
    controls = {control.name: config.gates.controls.get(control.name) for control in policy.controls}
    wanted = dict.fromkeys([candidate, baseline, *filter(None, controls.values())])
    found = {name: identify(config.engine(name)) for name in wanted}
    known = (*(artefact.identity for artefact, _ in found.values()), *configured(config))
    if not args.candidate_url and not args.any_baseline:
        check_baseline(config, (candidate, baseline), (found[candidate][0], found[baseline][0]), known)
    public, model = model_of(config, candidate, baseline)
    sides = {name: await _served(config, config.engine(name), found[name], model, stack) for name in wanted}
    return GateJob(
        suite=cases,
        policy=policy,
        candidate=sides[candidate],
        baseline=sides[baseline],
        controls={
            name: (sides[engine], Variant()) if engine else (sides[baseline], VARIANTS[name])
            for name, engine in controls.items()
            if engine or name in VARIANTS
        },
        known=known,
        timed=not args.no_latency,
        full=args.full,
        jobs=args.jobs,
        gateway={"model": public} | settings(model),
        sequential=args.sequential,
        outside=outside,
    )


def judged_by(args: argparse.Namespace, config: Config, suite: Suite) -> tuple[Policy, Suite]:
    """The policy that `--policy` names, by default the configured one, and for a suite in one file the derived one; and the cases of
    the suite that it draws. Raises PolicyError.
    """
    name = args.policy or (DERIVED if is_own(args.suite or "") else config.gates.policy)
    policy = policy_for(name, suite)
    cases = drawn(suite, policy.draw)
    check_policy(policy, cases)
    return policy, cases


def model_of(config: Config, candidate: str, baseline: str) -> tuple[str, ModelConfig]:
    """The public model that the candidate is for: the one that names it, or else its baseline, or the first."""
    models, wanted = config.models.items(), (candidate, baseline)
    found = [one for engine in wanted for one in models if engine in (*one[1].engines, one[1].baseline)]
    return next(iter([*found, *models]))


def configured(config: Config) -> Iterator[ModelIdentity]:
    """The manifests of all artefacts in the configuration, and of the folders beside them.

    Lineage is found through them: a GGUF file that was made from an NVFP4 folder names that folder as its
    source, which no engine here may serve.
    """
    shelves = {artefacts.folder_of(e.artefact).parent for e in config.engines.values() if e.artefact}
    for path in sorted(path for shelf in shelves for path in shelf.glob(f"*/{MANIFEST}")):
        with suppress(ManifestError):  # an engine that serves it will report the error
            yield artefacts.load(path.parent).identity


def check_baseline(
    config: Config, names: tuple[str, str], pair: tuple[Artefact, Artefact], known: Iterable[ModelIdentity]
) -> None:
    """Raises ManifestError if no promotion could accept a report that compares the artefacts of these two engines."""
    named = {model.baseline for model in config.models.values()}
    roots = {verified(config.engines[name], reads_weights=False).root for name in named if name}
    if names[0] == names[1]:
        why = f"candidate and baseline are both {names[0]}, which proves nothing"
    elif not (lineage := same_lineage(pair[0].identity, pair[1].identity, known)):
        why = f"baseline_lineage: {lineage.reason}; name the model it was made from"
    elif None not in named and roots.isdisjoint(one.root for one in pair):
        wanted = ", ".join(sorted(filter(None, named)))
        why = f"baseline_lineage: the configuration's baseline is {wanted}; name it"
    else:
        return
    raise ManifestError(f"{why}; to ask all the same, without a chance to pass: --any-baseline")


def _sealed(spec: EngineSpec) -> _Found:
    """The artefact of an engine, verified, and its files as before they were hashed. Raises RunError, ManifestError."""
    if spec.artefact is None:
        raise RunError(f"engines.{spec.name}: a gate needs its artefact; name the folder that it serves")
    folder = artefacts.folder_of(spec.artefact)
    files = artefacts.snapshot(folder)
    if problems := artefacts.verify(folder):
        raise ManifestError(f"{folder}: {problems[0]}; what is judged must be what its manifest says")
    return artefacts.load(folder), files


def _unsealed(spec: EngineSpec) -> _Found:
    """In place of the artefact of a running engine of which nothing but its address is known."""
    root = f"sha256:{hashlib.sha256(str(spec.url).encode()).hexdigest()}"
    parents = {"source": f"sha256:{hashlib.sha256().hexdigest()}"}
    return Artefact(spec.name, "unsealed", root, (), "", Provenance(parents=parents)), ()


async def _served(
    config: Config, spec: EngineSpec, found: _Found, model: ModelConfig, stack: AsyncExitStack
) -> ServedModel:
    artefact, files = found
    engine, state = await started(config, spec, stack)
    described = describe(spec, artefact, state)
    target = target_of(spec, state, artefact.root, described.digest)
    side = ServedModel(
        target=replace(target, hearing=hearing(model, spec.dialect, state.abilities)),
        artefact=artefact,
        engine=described,
        numerics=(await engine.describe())["numerics"],
        reply_format=state.abilities.format,
        tokens=special_tokens(artefacts.folder_of(spec.artefact)) if spec.artefact else frozenset(),
        files=files,
    )
    return replace(side, context=state.abilities.context or side.context)


def special_tokens(folder: Path) -> frozenset[str]:
    """The added tokens of a folder's tokenizer; none for a GGUF, where detectors use their list of usual tags."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return frozenset()
    try:
        return added_tokens(strict_json.loads(path.read_text("utf-8")))
    except ValueError as error:
        raise ManifestError(f"{path}: not a tokenizer ({error})") from None


def harness() -> Harness:
    """This program, as the report states it; in a git checkout with its commit, and whether there are uncommitted changes."""
    root, found = Path(__file__).parents[2], ""
    asked = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"]
    with suppress(OSError, subprocess.SubprocessError):
        if (root / ".git").exists():
            found = subprocess.check_output(asked, cwd=root, stderr=subprocess.DEVNULL, text=True, timeout=10)
    commit, _, dirty = found.strip().partition("-")
    tools = {name: metadata.version(name) for name in _PACKAGES}
    tools |= {"manners": VERSION, "python": platform.python_version()}
    return Harness(VERSION, commit or None, bool(dirty), tools)


def host() -> dict[str, str]:
    """The machine on which the run takes place."""
    named = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"), re.M)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": named[1] if named else platform.processor(),
        "cores": str(usable_cores()),
        "accelerator": host_gpu(),
    }


def check_contamination(job: GateJob, data: Iterable[Path]) -> tuple[Pinned, ...]:
    """Check that no prompt of the suite occurs in these files; returns them with their digests.

    Raises SuiteError if one does: the report would measure memorised answers.
    """
    model, suite = job.candidate.artefact, job.suite
    if model.provenance.data_digest == suite.digest:
        raise SuiteError(f"{model.name} was trained on suite {suite.name}; use another")
    for path in data:
        if found := ContaminationCheck(suite).overlaps(row for _, row in read_objects(path)):
            many = f"{len(found)} prompts of suite {suite.name} occur in it, the first: {found[0]}"
            raise SuiteError(f"{path}: {many}; take them out of the data, or judge by another suite")
    return tuple(Pinned(path.name, None, f"sha256:{artefacts.hash_file(path.resolve())[1]}") for path in data)
