"""The table of `make coverage`: files are summed by floor and room."""

from tests.coverage_report import table


def measured(lines: int, covered: int, branches: int, taken: int) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "num_statements": lines,
            "covered_lines": covered,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_files_are_summed_by_floor_and_room() -> None:
    files = {
        "app/wiring.py": measured(10, 10, 0, 0),
        "app/stream/joiner.py": measured(20, 19, 4, 2),
        "app/stream/parser.py": measured(20, 20, 4, 4),
        "gates/stats/deep/zero.py": measured(3, 0, 2, 0),
    }
    told = [line.split() for line in table(files)][1:]
    assert told == [
        ["app", "50", "98", "%", "8", "75", "%"],
        ["(beside", "the", "rooms)", "10", "100", "%", "0", "-"],
        ["stream", "40", "97", "%", "8", "75", "%"],
        ["gates", "3", "0", "%", "2", "0", "%"],
        ["stats", "3", "0", "%", "2", "0", "%"],
    ]
