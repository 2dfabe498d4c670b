"""What must be true of a run of the chain."""

from tests.chain.record import Figures


def checks(found: Figures) -> list[tuple[str, bool]]:
    """What a run must show; only of steps that are done."""
    steps, listed = found["steps"], []
    for name, wanted in (("gate: PTQ", False), ("gate: QAT on vLLM", True)):
        if gate := steps.get(name):
            listed.append((f"{name}: {gate['verdict']}", (gate["verdict"] == "pass") == wanted))
    if live := steps.get("live"):
        killed, streams = live["killed"], live["streams"][-1]
        listed += [
            (f"PTQ is not promoted: {live['refused']['code']}", live["refused"]["code"] == "verdict_not_pass"),
            ("QAT on vLLM is promoted", live["promoted"]["phase"] == "succeeded"),
            (f"the bad one is rolled back: {live['rolled back']['code']}",
             live["rolled back"]["phase"] == "rolled_back" and live["rolled back"]["live"] == "trained"),
            (f"{killed['answered by the fallback']} answered by Q4_K_M while vLLM is gone", killed["answered by the fallback"] > 0),
            (f"of {streams['streams']} streams {streams['lost']} lost", streams["lost"] == 0),
            (f"{streams['truncated']} truncated, all by the kill", streams["truncated"] == killed["truncated"]),
            ("the audit's chain holds", live["audit"]["chain holds"]),
        ]  # fmt: skip
    return listed
