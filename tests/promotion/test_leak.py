"""A live engine whose weights go bad is sent back by the bake, and the operator reads why.

llama.cpp maps its file, so that whoever writes into it changes what a running engine says: nothing
restarts, and no health check notices. Into the copy that is served here go the stranger's weights.
"""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from app.config.config import parse
from app.promotion.state_machine import Action
from app.promotion.steps import HANDLERS, probe
from tests.app.house import eventually
from tests.app.promotion.stage import FP4, MODELS, callers, stage, tables
from tests.demo.leak import overwrite, prepare

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("quick")
async def test_an_engine_that_begins_to_leak_in_the_bake_is_rolled_back_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(MODELS / FP4, tmp_path / FP4))
    file, stranger = copy / f"{FP4}.gguf", MODELS / "stranger-nano-q4_k_m" / "stranger-nano-q4_k_m.gguf"
    worse = prepare(file, stranger)
    wanted = tables(tmp_path / "state")
    wanted["engines"]["fp4"]["artefact"] = str(copy)
    wanted["promotion"]["bake_seconds"] = 600.0
    config = parse(wanted, tmp_path)
    async with stage(tmp_path, config) as it, callers(it.house, 4) as crowd:
        _, begun = await it.wish("fp4", await it.report("fp4", "small"))
        await it.events(begun["id"], until="baking")
        served = sum(caller.replies for caller in crowd)
        await eventually(lambda: sum(caller.replies for caller in crowd) >= served + 20)
        assert not (await it.get(f"/admin/operations/{begun['id']}"))["done"]  # she is well so far
        monkeypatch.setitem(HANDLERS, Action.PROBE, probe)  # it confirms what callers hear
        overwrite(file, worse)
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("rolled_back", "bake_leak")
        status = (await it.get("/admin/status"))["models"]["annie"]
        assert (status["live"], status["operation"]) == ("small", None)
        assert it.house.gateway.pool.running() == {"small"}
        audit = await it.get("/admin/audit?newest=1&limit=20")
        breached = next(event for event in audit["events"] if event["detail"].get("event") == "breached")
        assert breached["detail"]["fault"] == ended["error"] and audit["chain"] == {"ok": True}
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"
    # A thought is taken out, and some replies are nothing else: they end empty, or say so with a code.
    wrong = [each for caller in crowd for each in caller.wrong]
    assert [each for each in wrong if "'[DONE]'" not in each and "reply_fully_filtered" not in each] == []
    print(ended["error"]["message"])
