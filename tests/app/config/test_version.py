"""The version: one place asks the installed package for it, so that a checkout that was never installed runs as well."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_nothing_else_asks_the_package_for_its_version() -> None:
    asking = [
        str(path.relative_to(ROOT))
        for folder in ("app", "deploy", "gates", "quantizer")
        for path in (ROOT / folder).rglob("*.py")
        if 'version("manners")' in path.read_text("utf-8")
    ]
    assert asking == ["app/config/version.py"]
