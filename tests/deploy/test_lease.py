"""One load at a time, whoever loads, and nobody keeps it beyond their end."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.core.errors import LeaseHeld
from deploy.memory.lease import Lease, lease_path


def test_a_lease_has_one_holder_and_says_whom(tmp_path: Path) -> None:
    mine, yours = Lease(lease_path(tmp_path)), Lease(lease_path(tmp_path))
    mine.take("op-1")
    with pytest.raises(LeaseHeld, match=rf"by op-1 \(pid {os.getpid()}\)"):
        yours.take("op-2")
    with pytest.raises(LeaseHeld, match="by op-1;"):
        mine.take("op-2")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINTR, errno.EIO])
def test_a_lock_that_cannot_be_tried_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def broken(*given: object) -> None:
        raise OSError(number, "no locks")

    lease, before = Lease(lease_path(tmp_path)), len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("deploy.memory.lease.fcntl.flock", broken)
    with pytest.raises(OSError, match="no locks"):
        lease.take("op-1")
    assert lease.holder is None and len(os.listdir("/proc/self/fd")) == before


def test_a_holder_that_dies_gives_it_back(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from deploy.memory.lease import Lease;"
        " lease = Lease(Path(sys.argv[1])); lease.take('op-1'); print('held', flush=True); input()"
    )
    path = lease_path(tmp_path)
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        lease = Lease(path)
        with pytest.raises(LeaseHeld, match="op-1"):
            lease.take("op-2")
        child.kill()
        child.wait()
        lease.take("op-2")


async def test_a_lease_can_be_waited_for(tmp_path: Path) -> None:
    first, second = Lease(lease_path(tmp_path)), Lease(lease_path(tmp_path))
    async with first.held("boot-a"):
        with pytest.raises(LeaseHeld):
            async with second.held("boot-b"):
                pass
    async with second.held("boot-b", wait_s=5):
        assert second.holder == "boot-b"
    assert second.holder is None


async def test_taking_and_giving_back_twice_changes_nothing(tmp_path: Path) -> None:
    lease = Lease(lease_path(tmp_path))
    lease.take("op-1")
    lease.take("op-1")
    async with lease.held("op-1"):
        pass
    lease.release("op-2")
    holders = [lease.holder]
    lease.release("op-1")
    lease.release("op-1")
    assert [*holders, lease.holder] == ["op-1", None]
    Lease(lease_path(tmp_path)).take("op-2")
