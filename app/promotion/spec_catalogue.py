"""All engine specs that are known here, by digest: those of the configuration, and earlier ones.

An engine whose table was edited is another engine. The earlier spec is kept while an operation names it, so that the
engine can be stopped, or brought back.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from app.errors.tree import Refused, UnknownThing
from app.registry.values import KnownEngine
from deploy.engine.spec import EngineSpec, spec_digest


class SpecCatalogue(dict[str, EngineSpec]):
    """Specs by digest, and by name. A name belongs to the configuration's engine first."""

    def __init__(self, engines: Mapping[str, EngineSpec]) -> None:
        self._digests = {name: spec_digest(spec) for name, spec in engines.items()}
        super().__init__((self._digests[name], spec) for name, spec in engines.items())

    def digest(self, name: str) -> str:
        """The digest of an engine of the configuration. Raises UnknownThing."""
        if name not in self._digests:
            message = f"there is no engine {name[:64]!r} here; there is: {', '.join(sorted(self._digests))}"
            raise UnknownThing(message, "engine_not_found")
        return self._digests[name]

    def name(self, digest: str) -> str:
        """The name of an engine; the first characters of its digest if it is not known."""
        return self[digest].name if digest in self else digest[:19]

    def check(self, engines: Mapping[str, EngineSpec]) -> None:
        """Raises Refused (restart_required): a name belongs to an earlier engine here, which may be running."""
        kept = {spec.name: spec for spec in self.values() if spec.name not in self._digests}
        if clashes := sorted(name for name, spec in engines.items() if kept.get(name, spec) != spec):
            names = ", ".join(f"engines.{name}" for name in clashes)
            why = f"a restart is needed for {names}: an earlier engine of that name is still in use"
            raise Refused(why, "restart_required")

    def configure(self, engines: Mapping[str, EngineSpec]) -> None:
        """Add engines of the configuration; the earlier one of a name gets another name."""
        for name, spec in engines.items():
            digest, before = spec_digest(spec), self._digests.get(name)
            if before not in (None, digest):
                self[before] = _renamed(self[before], before)
            self._digests[name], self[digest] = digest, spec

    def add(self, known: KnownEngine) -> None:
        """Add an engine that the registry knows and the configuration does not; no effect on others."""
        if known.digest in self:
            return
        spec = spec_of(known.spec)
        if spec.name in self._digests:  # the configuration has given the name to another engine
            own = self[self._digests[spec.name]]
            spec = _renamed(spec, known.digest)
            if own.url == spec.url:
                spec = replace(spec, key_file=own.key_file, ca_file=own.ca_file)
        self[known.digest] = spec


def _renamed(spec: EngineSpec, digest: str) -> EngineSpec:
    """An earlier engine, whose name the configuration has given to another one."""
    return replace(spec, name=f"{spec.name[:50]}-{digest[7:15]}")


def spec_of(text: str) -> EngineSpec:
    """The spec that `deploy.engine.spec.spec_text` wrote."""
    spec: EngineSpec = msgspec.json.decode(text, type=EngineSpec, dec_hook=lambda kind, value: kind(value))
    return spec
