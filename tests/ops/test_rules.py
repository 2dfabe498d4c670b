"""promtool: the configuration is sound, each alert fires and stays silent, and a broken one is noticed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.ops.facts import ALERTS, PROMETHEUS, expressions, rules
from tests.ops.prometheus import binary, plain
from tests.scale import PATIENCE

pytestmark = pytest.mark.ops
NAMES = sorted({name for name, _ in rules(ALERTS, "alert")})


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


@pytest.mark.parametrize("always", [True, False], ids=["always", "never"])
def test_an_alert_that_is_broken_is_noticed(tmp_path: Path, always: bool) -> None:
    """Each of them, when it always fires, and when it never does. All are broken at once: no alert asks for another."""
    broken = shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    path = broken / "rules" / "alerts.yml"
    table = yaml.safe_load(path.read_text("utf-8"))
    for rule in (rule for group in table["groups"] for rule in group["rules"]):
        rule["expr"] = "vector(1)" if always else "vector(1) > 2"
    path.write_text(yaml.safe_dump(table), "utf-8")
    done = promtool("test", "rules", "tests/alerts_test.yml", cwd=broken)
    assert done.returncode != 0
    noticed = re.findall(r"alertname: (\w+),", done.stdout + done.stderr)
    assert set(noticed) == set(NAMES)


def test_every_expression_of_the_dashboards_is_promql(tmp_path: Path) -> None:
    """As recording rules, since promtool checks those."""
    asked = [expr for _, expr in expressions() if not expr.startswith("label_values")]
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, expr in enumerate(asked):
        lines += [f"      - record: panel:{number}", "        expr: >-", f"          {plain(expr)}"]
    (tmp_path / "panels.yml").write_text("\n".join(lines) + "\n", "utf-8")
    done = promtool("check", "rules", "panels.yml", cwd=tmp_path)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr
