"""What an engine, or the gateway over it, cannot do yet, with the reason; a test fails when it has come right.

`KNOWN`: rows by kind, shown in `docs/engines.md`. `MISHEARD`: golden streams, whose `.heard.json` says
what should be heard of them.
"""

from collections.abc import Mapping

KNOWN: Mapping[str, Mapping[str, str]] = {}

MISHEARD: Mapping[str, str] = {}
