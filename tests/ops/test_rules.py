"""promtool: the configuration is sound, each alert fires and stays silent, and a broken one is noticed."""

import subprocess
from pathlib import Path

import pytest

from tests.ops.facts import PROMETHEUS, expressions
from tests.ops.prometheus import binary, plain
from tests.scale import PATIENCE

pytestmark = pytest.mark.ops


def promtool(*args: str, cwd: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    """What it says, and whether it is content."""
    argv = [binary("promtool"), *args]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=10 * PATIENCE)


def test_the_configuration_is_sound() -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0 and "2 rule files found" in done.stdout, done.stdout + done.stderr


def test_every_alert_fires_and_stays_silent_as_it_should() -> None:
    done = promtool("test", "rules", "tests/alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_expression_of_the_dashboards_is_promql(tmp_path: Path) -> None:
    """As recording rules, since promtool checks those."""
    asked = [expr for _, expr in expressions() if not expr.startswith("label_values")]
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, expr in enumerate(asked):
        lines += [f"      - record: panel:{number}", "        expr: >-", f"          {plain(expr)}"]
    (tmp_path / "panels.yml").write_text("\n".join(lines) + "\n", "utf-8")
    done = promtool("check", "rules", "panels.yml", cwd=tmp_path)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr
