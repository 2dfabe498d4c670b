"""The counters of a running gateway: tool calls that its engines parsed, and those that the gateway had to rescue."""

from collections.abc import Mapping
from typing import Final

import httpx2
from prometheus_client.parser import text_string_to_metric_families

SECONDS: Final = 2.0
_CALLS: Final = "manners_tool_calls_total"


def calls(address: str) -> Mapping[str, Mapping[str, int]]:
    """Tool calls of each engine by `source`; {} if no gateway answers at the admin address."""
    try:
        reply = httpx2.get(f"http://{address}/metrics", timeout=SECONDS, trust_env=False)
        return calls_in(reply.raise_for_status().content.decode("utf-8", "replace"))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return {}


def calls_in(text: str) -> dict[str, dict[str, int]]:
    """The same from Prometheus' text format. Raises ValueError if it is malformed."""
    found: dict[str, dict[str, int]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _CALLS:
                engine = found.setdefault(sample.labels.get("engine", ""), {})
                source = sample.labels.get("source", "")
                engine[source] = engine.get(source, 0) + int(sample.value)
    return found
