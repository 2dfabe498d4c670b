"""promtool: the configuration is sound, each alert fires and stays silent, and a broken one is noticed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ops.facts import ALERTS, PROMETHEUS, RULE_TESTS, expressions, rules
from tests.ops.prometheus import binary, plain

pytestmark = pytest.mark.ops
NAMES = sorted({name for name, _ in rules(ALERTS, "alert")})


def promtool(*args: str, cwd: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    """What it says, and whether it is content."""
    argv = [binary("promtool"), *args]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_configuration_is_sound() -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0 and "2 rule files found" in done.stdout, done.stdout + done.stderr


def test_every_alert_fires_and_stays_silent_as_it_should() -> None:
    done = promtool("test", "rules", "tests/alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("always", [True, False], ids=["always", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_that_is_broken_is_noticed(tmp_path: Path, name: str, always: bool) -> None:
    """One that always fires, and one that never does."""
    broken = shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    path = broken / "rules" / "alerts.yml"
    instead = "vector(1)" if always else "vector(1) > 2"
    rule = rf"(- alert: {name}\n +expr: >-\n)(?: {{10}}.*\n)+"
    text, count = re.subn(rule, rf"\1          {instead}\n", path.read_text("utf-8"))
    assert count >= 1
    path.write_text(text, "utf-8")
    head, *tests = re.split(r"(?=^  - name: )", RULE_TESTS.read_text("utf-8"), flags=re.MULTILINE)
    concerned = [test for test in tests if f"alertname: {name}" in test]
    (broken / "tests" / "alerts_test.yml").write_text(head + "".join(concerned), "utf-8")
    done = promtool("test", "rules", "tests/alerts_test.yml", cwd=broken)
    assert done.returncode != 0 and name in done.stdout + done.stderr


def test_every_expression_of_the_dashboards_is_promql(tmp_path: Path) -> None:
    """As recording rules, since promtool checks those."""
    asked = [expr for _, expr in expressions() if not expr.startswith("label_values")]
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, expr in enumerate(asked):
        lines += [f"      - record: panel:{number}", "        expr: >-", f"          {plain(expr)}"]
    (tmp_path / "panels.yml").write_text("\n".join(lines) + "\n", "utf-8")
    done = promtool("check", "rules", "panels.yml", cwd=tmp_path)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr
