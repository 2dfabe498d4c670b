"""How commands find the gateway that runs."""

import os
from pathlib import Path

from app.config import running


def test_the_default_gateway_is_found_before_others_and_a_dead_one_never(tmp_path: Path) -> None:
    def start(folder: str, pid: int) -> running.RunningGateway:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        one = running.RunningGateway(folder, "admin", pid, str(tmp_path / folder))
        running.announce(one)
        return one

    start("serve/dead", 2**22 + 1)
    assert running.find(tmp_path) is None
    other = start("serve/other", os.getpid())
    (tmp_path / "serve/other/gateway.json").touch()
    assert running.find(tmp_path) == other
    default = start(".", os.getpid())
    os.utime(tmp_path / "gateway.json", (1, 1))
    assert running.find(tmp_path) == default
    running.withdraw(default)
    assert running.find(tmp_path) == other
