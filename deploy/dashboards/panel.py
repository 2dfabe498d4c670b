"""The parts of a Grafana dashboard as values, and their JSON. Pure.

Only what these dashboards use; fields have Grafana's names where it has one. `schemaVersion` 39 is that
of Grafana 11: newer ones read it and migrate it in memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

Json = dict[str, Any]
Unit = Literal["s", "reqps", "short", "bytes", "percentunit", "tok/s", "cpm"]
"""Grafana's ids of units: seconds, requests per second, plain, bytes, share, tokens per second, counts per minute."""

SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
"""Whatever the variable `datasource` is set to: the provisioned one, or any of a Grafana that imports the page."""
INPUT: Final = "DS_PROMETHEUS"
"""What Grafana's import dialog asks for. A provisioned page has nobody to ask: there the variable, whose value
is then no data source, falls back to the default one."""
WIDTH: Final = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its lines."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with its queries; `width` and `height` in units of Grafana's grid."""

    kind: ClassVar[str]  # Grafana's panel type

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    width: int = 12
    height: int = 8

    def json(self) -> Json:
        """The panel's JSON without id and position."""
        return {
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": SOURCE,
            "targets": [self._target(i, query) for i, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": {"unit": self.unit, **self._defaults()}, "overrides": []},
            "options": self._options(),
        }

    def _target(self, number: int, query: Query) -> Json:
        target = {"refId": chr(ord("A") + number), "expr": query.expr, "datasource": SOURCE}
        return {**target, "legendFormat": query.legend or "__auto", "editorMode": "code", "range": True}

    def _defaults(self) -> Json:
        return {}

    def _options(self) -> Json:
        return {}


@dataclass(frozen=True, slots=True)
class TimeSeriesPanel(Panel):
    """Values over time. `limit` is drawn as a horizontal line: a service level or a floor."""

    kind = "timeseries"

    limit: float | None = None
    stacked: bool = False

    def _defaults(self) -> Json:
        custom: Json = {"lineWidth": 1, "fillOpacity": 25 if self.stacked else 6, "showPoints": "never"}
        custom["stacking"] = {"mode": "normal" if self.stacked else "none", "group": "A"}
        custom["thresholdsStyle"] = {"mode": "off" if self.limit is None else "dashed"}
        return {"min": 0, "custom": custom, "thresholds": thresholds(self.limit)}

    def _options(self) -> Json:
        legend = {
            "displayMode": "table",
            "placement": "bottom",
            "calcs": ["lastNotNull", "max"],
            "showLegend": True,
        }
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


@dataclass(frozen=True, slots=True)
class HeatmapPanel(Panel):
    """A histogram's buckets over time: how many fell into each."""

    kind = "heatmap"

    def _target(self, number: int, query: Query) -> Json:
        return {**Panel._target(self, number, query), "format": "heatmap", "legendFormat": "{{le}}"}

    def _options(self) -> Json:
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "reverse": False},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "le"},
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "unit": self.unit},
        }


@dataclass(frozen=True, slots=True)
class StatPanel(Panel):
    """The latest value. At `limit` its colour changes: red above, or below if `low_is_bad`."""

    kind = "stat"

    limit: float | None = None
    low_is_bad: bool = False

    def _defaults(self) -> Json:
        return {"thresholds": thresholds(self.limit, self.low_is_bad)}

    def _options(self) -> Json:
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area", "textMode": "auto"}


@dataclass(frozen=True, slots=True)
class StateTimelinePanel(Panel):
    """When a value was 1: one bar for each time series."""

    kind = "state-timeline"

    def _defaults(self) -> Json:
        colours = {
            "0": {"text": "no", "color": "red", "index": 0},
            "1": {"text": "yes", "color": "green", "index": 1},
        }
        return {
            "mappings": [{"type": "value", "options": colours}],
            "custom": {"fillOpacity": 70, "lineWidth": 0},
        }

    def _options(self) -> Json:
        return {"showValue": "never", "mergeValues": True, "rowHeight": 0.8, "legend": {"showLegend": False}}


@dataclass(frozen=True, slots=True)
class TablePanel(Panel):
    """Labels as a table; only `columns` are shown, in this order."""

    kind = "table"

    columns: tuple[str, ...] = ()

    def json(self) -> Json:
        order = {"indexByName": {name: i for i, name in enumerate(self.columns)}}
        only = {"id": "filterFieldsByName", "options": {"include": {"names": list(self.columns)}}}
        return {**Panel.json(self), "transformations": [only, {"id": "organize", "options": order}]}

    def _target(self, number: int, query: Query) -> Json:
        return {**Panel._target(self, number, query), "format": "table", "instant": True, "range": False}


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A row: a heading and the panels below it, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A template variable: one, several or all values of a label."""

    name: str
    query: str

    def json(self) -> Json:
        """As `templating.list` has it."""
        query = {"query": self.query, "refId": self.name}
        fixed = {
            "type": "query",
            "datasource": SOURCE,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
        }
        everything = {"text": "All", "value": "$__all"}
        return {"name": self.name, "query": query, **fixed, "allValue": ".*", "current": everything}


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation: points in time that are drawn across every panel."""

    name: str
    query: Query
    colour: str

    def json(self) -> Json:
        """As `annotations.list` has it."""
        known = {"name": self.name, "enable": True, "iconColor": self.colour, "datasource": SOURCE}
        return {**known, "expr": self.query.expr, "titleFormat": self.query.legend, "step": "15s"}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page."""

    uid: str
    title: str
    about: str
    sections: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()
    marks: tuple[Annotation, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)  # title -> uid

    def panels(self) -> Iterable[Panel]:
        """Every panel, in the order of the page."""
        return (panel for section in self.sections for panel in section.panels)

    def expressions(self) -> Iterable[tuple[str, str]]:
        """Every expression on the page, with what it is for."""
        yield from ((panel.title, query.expr) for panel in self.panels() for query in panel.queries)
        yield from ((mark.name, mark.query.expr) for mark in self.marks)

    def json(self) -> Json:
        """The JSON that Grafana provisions or imports; not editable in Grafana."""
        links = [
            {"type": "link", "title": title, "url": f"/d/{uid}", "keepTime": True, "includeVars": True}
            for title, uid in self.links.items()
        ]
        return {
            "__inputs": [
                {"name": INPUT, "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
            ],
            "__requires": [{"type": "datasource", "id": "prometheus", "name": "Prometheus"}],
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["manners"],
            "editable": False,
            "graphTooltip": 1,
            "links": links,
            "refresh": "15s",
            "schemaVersion": 39,
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": [mark.json() for mark in self.marks]},
            "templating": {"list": [_SOURCES, *(variable.json() for variable in self.variables)]},
            "panels": lay_out(self.sections),
            "version": 1,
        }


_SOURCES: Final[Json] = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "current": {"text": "Prometheus", "value": f"${{{INPUT}}}"},
    "refresh": 1,
}
"""The variable that every query on the page goes to."""


def thresholds(limit: float | None, low_is_bad: bool = False) -> Json:
    """Green and red with `limit` between them; without one, green."""
    first, second = ("red", "green") if low_is_bad else ("green", "red")
    steps: list[Json] = [{"color": first if limit is not None else "green", "value": None}]
    if limit is not None:
        steps.append({"color": second, "value": limit})
    return {"mode": "absolute", "steps": steps}


def lay_out(sections: Sequence[PanelRow]) -> list[Json]:
    """Panels with ids and grid positions. Raises ValueError for a panel that is wider than the grid."""
    placed: list[Json] = []
    y = 0
    for section in sections:
        row = {"type": "row", "title": section.title, "collapsed": False, "panels": []}
        placed.append({**row, "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        x, y, height = 0, y + 1, 0
        for panel in section.panels:
            if panel.width > WIDTH:
                raise ValueError(f"{panel.title}: {panel.width} columns of {WIDTH}")
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append({**panel.json(), "gridPos": place})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return [{"id": number, **panel} for number, panel in enumerate(placed, start=1)]
