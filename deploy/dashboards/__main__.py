"""`python -m deploy.dashboards`: write the dashboards where Grafana is provisioned from."""

import json
from pathlib import Path
from typing import Final

from deploy.dashboards.engines import ENGINES
from deploy.dashboards.panel import Dashboard
from deploy.dashboards.voice import VOICE

FOLDER: Final = Path(__file__).parents[1] / "grafana" / "dashboards"
ALL: Final = (VOICE, ENGINES)


def path_of(dashboard: Dashboard) -> Path:
    """The dashboard's file in the repository."""
    return FOLDER / f"{dashboard.uid}.json"


def text_of(dashboard: Dashboard) -> str:
    """The file's content."""
    return json.dumps(dashboard.json(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in ALL:
        path_of(each).write_text(text_of(each), "utf-8")
