"""The PromQL expressions that the dashboards share. Pure.

Windows are Grafana's `$__rate_interval`: at least four scrapes, whatever the zoom.
"""

from typing import Final

CHOSEN: Final = 'model=~"$model",engine=~"$engine"'
"""The filter for the template variables of the dashboard."""
MODEL: Final = 'model=~"$model"'
"""The same, of a metric without an engine."""
WINDOW: Final = "$__rate_interval"


def quantile(q: float, histogram: str, *by: str) -> str:
    """The `q` quantile of a histogram, for each combination of the labels `by`."""
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{{{CHOSEN}}}[{WINDOW}])))"


def buckets(histogram: str) -> str:
    """Observations per bucket, for a heatmap."""
    return f"sum by (le) (increase({histogram}_bucket{{{CHOSEN}}}[{WINDOW}]))"


def per_second(counter: str, *by: str, chosen: str = CHOSEN) -> str:
    return f"sum by ({', '.join(by)}) (rate({counter}{{{chosen}}}[{WINDOW}]))"


def per_minute(counter: str, *by: str) -> str:
    return f"60 * {per_second(counter, *by)}"
