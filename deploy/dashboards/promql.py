"""The few shapes of PromQL that the dashboards are written in. Pure.

Windows are Grafana's `$__rate_interval`: at least four scrapes, whatever the zoom.
"""

from typing import Final

CHOSEN: Final = 'model=~"$model",engine=~"$engine"'
"""What is chosen at the top of the page."""
WINDOW: Final = "$__rate_interval"


def quantile(q: float, histogram: str, *by: str, chosen: str = CHOSEN) -> str:
    """The value that a share `q` of observations stayed below, for each combination of `by`."""
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{{{chosen}}}[{WINDOW}])))"


def buckets(histogram: str) -> str:
    """How many observations fell into each bucket: a heatmap's input."""
    return f"sum by (le) (increase({histogram}_bucket{{{CHOSEN}}}[{WINDOW}]))"


def per_second(counter: str, *by: str, chosen: str = CHOSEN) -> str:
    """How often it was counted."""
    return f"sum by ({', '.join(by)}) (rate({counter}{{{chosen}}}[{WINDOW}]))"


def per_minute(counter: str, *by: str, chosen: str = CHOSEN) -> str:
    """The same for what is rare."""
    return f"60 * {per_second(counter, *by, chosen=chosen)}"
