"""Which deed brings which effect about, and how long it may take."""

from collections.abc import Mapping
from typing import Final

from app.promotion import bring, prove
from app.promotion.effects import Verb
from app.promotion.site import Deed

DEEDS: Final[Mapping[Verb, Deed]] = {
    Verb.CHECK: prove.check,
    Verb.LEASE: bring.lease,
    Verb.ADMIT: bring.admit,
    Verb.START: bring.start,
    Verb.IDENTIFY: prove.identify,
    Verb.WARM: prove.warm,
    Verb.PROBE: prove.probe,
    Verb.ROUTE: bring.route,
    Verb.DRAIN: bring.drain,
    Verb.STOP: bring.stop,
    Verb.RELEASE: bring.release,
    Verb.WATCH: prove.watch,
}

SECONDS: Final[Mapping[Verb, float]] = {
    Verb.CHECK: 900.0,
    Verb.LEASE: 1800.0,
    Verb.ADMIT: 300.0,
    Verb.START: 3600.0,
    Verb.IDENTIFY: 900.0,
    Verb.WARM: 900.0,
    Verb.PROBE: 600.0,
    Verb.ROUTE: 3600.0,
    Verb.STOP: 300.0,
    Verb.RELEASE: 60.0,
}
"""A bound on what ends by itself, in seconds; a large engine's weights are hashed, loaded and compiled
in minutes. What is not listed (drain, watch) has a bound of its own."""
