"""How commands find the gateway that runs."""

import os
from pathlib import Path

from app.config import running


def test_the_default_gateway_is_found_before_others_and_a_dead_one_never(tmp_path: Path) -> None:
    def made(folder: str, pid: int = os.getpid()) -> running.RunningGateway:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        return running.RunningGateway(folder, "admin", pid, str(tmp_path / folder))

    with made("serve/dead", 2**22 + 1).announced():
        assert running.find(tmp_path) is None
        other, default = made("serve/other"), made(".")
        with other.announced():
            assert running.find(tmp_path) == other
            with default.announced():
                os.utime(tmp_path / "gateway.json", (1, 1))
                assert running.find(tmp_path) == default
            assert running.find(tmp_path) == other
