"""Checks of the configuration: that it loads, is not open to the network and keeps its state. Pure."""

from typing import Final

from deploy.doctor.evidence import Evidence
from deploy.doctor.result import CheckResult, check, fail, ok, unknown, warn

LOOPBACK: Final = ("127.", "localhost", "[::1]", "::1")
FAR: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs")
"""Network file systems, where flock and fsync depend on another machine."""
PASSING: Final = ("tmpfs", "ramfs", "overlay")


@check("config.schema")
def _schema(evidence: Evidence) -> CheckResult:
    setting = evidence.setting
    if setting.error:
        return fail(setting.error, f"correct {setting.file}; deploy/manners.example.toml has every key")
    return ok(f"{setting.file}: {len(evidence.engines)} engines")


def _public(address: str | None) -> bool:
    return address is not None and not address.startswith(LOOPBACK)


@check("config.listen")
def _listen(evidence: Evidence) -> CheckResult | None:
    setting = evidence.setting
    if setting.listen is None:
        return None
    if _public(setting.listen) and not setting.keys:
        return fail(
            f"{setting.listen} is open to all who reach it",
            "manners key add NAME, or set MANNERS_API_KEYS, or listen on 127.0.0.1:8080",
        )
    return ok(f"{setting.listen}{', with keys' if setting.keys else ', this machine only'}")


@check("config.admin")
def _admin(evidence: Evidence) -> CheckResult | None:
    admin = evidence.setting.admin
    if admin is None:
        return None
    if _public(admin):
        return warn(
            f"{admin}: operators' calls and /metrics can be reached from elsewhere, with a token only",
            "listen on 127.0.0.1:8081, and let Prometheus come through a private network",
        )
    return ok(f"{admin}, this machine only")


@check("config.keys")
def _keys(evidence: Evidence) -> CheckResult | None:
    setting = evidence.setting
    if setting.keys is None:
        return None
    if setting.weak:
        return fail(setting.weak[0], "openssl rand -hex 32 | sed s/^/sk-/")
    return ok(f"{setting.keys} keys" if setting.keys else "none, and none is needed on loopback")


@check("config.state")
def _state(evidence: Evidence) -> CheckResult | None:
    setting = evidence.setting
    if setting.state is None:
        return None
    if setting.filesystem is None:
        return unknown(f"the file system of {setting.state} is not known", f"df -T {setting.state}")
    fix = "[gateway] state = a folder on a local disk (ext4, xfs, btrfs)"
    if setting.filesystem in FAR:
        return fail(f"{setting.state} is on {setting.filesystem}: a lock or an fsync may not hold there", fix)
    if setting.filesystem in PASSING:
        return warn(
            f"{setting.state} is on {setting.filesystem}, which goes with the machine or container", fix
        )
    return ok(f"{setting.state} on {setting.filesystem}")
