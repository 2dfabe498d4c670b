"""The console's page comes without a token and brings nothing from elsewhere; all that it shows needs one."""

import re
from pathlib import Path

from app.admin.console import FILES, STATIC, reading
from gates.report.files import VerifiedReport
from tests.app.house import house
from tests.gates.report import examples

GUARDED = (
    "/admin/ui/", "/admin/ui/routes.py", "/admin/ui/%2e%2e/status", "/admin/uix", "/admin/ui/console.css/",
    "/admin/status", "/admin/reports/sha256:00/reading",
)  # fmt: skip


async def test_the_page_its_two_files_and_the_runbook_need_no_token(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        for path, (name, kind) in FILES.items():
            answer = await it.get(it.admin + path)
            assert answer.status == 200
            assert name == "runbook.md" or answer.raw == (STATIC / name).read_bytes()
            assert answer.headers["content-type"].startswith(kind)
            assert answer.headers["content-security-policy"].startswith("default-src 'self';")
            assert answer.headers["cache-control"] == "no-cache"


async def test_nothing_else_comes_without_a_token(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        for path in GUARDED:
            assert (await it.get(it.admin + path)).error["code"] == "missing_api_key", path


def test_the_page_names_no_other_host_and_holds_no_script_or_style() -> None:
    page = (STATIC / "console.html").read_text("utf-8")
    assert not re.search(r"//\w|<style|style=|\son\w+=|<script(?! type=\"module\" src=)", page)
    script = (STATIC / "console.js").read_text("utf-8")
    assert set(re.findall(r"https?://[^\"]+", script)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_a_failure_is_read_with_its_reasons_and_its_gates() -> None:
    shown = reading(VerifiedReport(examples.failing(), "sha256:00", "sha256:01", (), ()))
    assert shown["verdict"] == "fail" and not shown["trusted"]
    assert "must not take over" in shown["headline"] and shown["reasons"]
    assert any(gate["verdict"] == "fail" and gate["decides"] for gate in shown["gates"])


async def test_the_runbook_has_the_section_that_each_alert_links_to(tmp_path: Path) -> None:
    """Without a token: a link carries none."""
    rules = (Path(__file__).parents[3] / "deploy/prometheus/rules/alerts.yml").read_text("utf-8")
    linked = set(re.findall(r"runbook_url: http://127\.0\.0\.1:8081(/admin/runbook)#(\w+)", rules))
    async with house(tmp_path) as it:
        page = (await it.get(f"{it.admin}/admin/runbook")).raw.decode()
    assert linked and not [anchor for _, anchor in linked if f'id="{anchor}"' not in page]
