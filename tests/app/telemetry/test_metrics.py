"""The catalogue of metrics: names, labels and buckets are a contract with dashboards."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from tests.app.house import TOOLS, GatewayFixture, eventually, house
from tests.script import Head, Say, Step, call, finish, reply, text, thought

pytestmark = pytest.mark.asyncio(loop_scope="module")

HISTOGRAMS = """
gen_ai_server_time_to_first_token_seconds manners_time_to_first_content_seconds manners_time_to_first_sentence_seconds
gen_ai_server_time_per_output_token_seconds gen_ai_server_request_duration_seconds manners_gateway_overhead_seconds
manners_stream_max_gap_seconds manners_queue_wait_seconds manners_promotion_phase_seconds
"""
COUNTERS = """
manners_requests manners_failovers manners_thinking_stripped manners_breach manners_bad_replies manners_tool_calls
manners_affinity manners_shift_requests manners_promotions manners_unauthorized manners_unreadable
manners_tokens manners_key_limited manners_reloads process_cpu_seconds
"""
GAUGES = """
manners_in_flight manners_queue_depth manners_concurrency_limit manners_queue_limit manners_active_engine
manners_replica_refused manners_shift_weight manners_engine_in_flight manners_engine_info manners_engine_ready
manners_live_gated manners_live_override_ended manners_report_expected manners_build_info
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc
manners_host_memory_available_bytes process_start_time_seconds process_resident_memory_bytes process_open_fds
"""
NAMES = {
    name: kind
    for kind, names in (("histogram", HISTOGRAMS), ("counter", COUNTERS), ("gauge", GAUGES))
    for name in names.split()
}
"""Families as the text format names them: a counter's samples end in _total."""


async def test_every_metric_of_the_design_is_there_from_the_start(home: GatewayFixture) -> None:
    """Under its name and with its type; a panel on it never says that it does not exist."""
    answer = await home.get(home.admin + "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = {f.name: f.type for f in text_string_to_metric_families(answer.raw.decode())}
    assert {name: families.get(name) for name in NAMES} == NAMES


MANNERS: dict[str, tuple[tuple[Step, ...], dict[str, Any], dict[str, tuple[str, ...]]]] = {
    # what the engine says, what is asked, which counters go up: name -> (label, value)
    "a thought apart": (
        (Head(), Say(thought("Hm.")), *reply("Yes.")[1:]),
        {},
        {"manners_thinking_stripped_total": ("kind", "field"), "manners_breach_total": ("detector", "leak")},
    ),
    "a thought in tags": (
        reply("<think>Hm.</think>Yes."),
        {},
        {"manners_thinking_stripped_total": ("kind", "tag"), "manners_breach_total": ("detector", "leak")},
    ),
    "a thought that was asked for": (
        (Head(), Say(thought("Hm.")), *reply("Yes.")[1:]),
        {"reasoning_effort": "low"},
        {"manners_thinking_stripped_total": ("kind", "field")},
    ),
    "a raw call that nobody asked for": (
        reply('Sure. <tool_call>{"name": "web_search", "arguments": {}}</tool_call>'),
        {},
        {
            "manners_breach_total": ("detector", "raw_tool_call"),
            "manners_tool_calls_total": ("source", "unasked"),
        },
    ),
    "nothing": (reply(""), {}, {"manners_breach_total": ("detector", "empty")}),
    "a call": (
        (Head(), Say(call("web_search", "{}")), Say(finish("tool_calls"))),
        {"tools": TOOLS},
        {"manners_tool_calls_total": ("source", "engine")},
    ),
    "a call as text": (
        reply('<tool_call>{"name": "web_search", "arguments": {}}</tool_call>'),
        {"tools": TOOLS},
        {"manners_tool_calls_total": ("source", "rescued")},
    ),
    "a call of an unknown tool": (
        (Head(), Say(text("Sure.")), Say(call("fly", "{}")), Say(finish("tool_calls"))),
        {"tools": TOOLS},
        {"manners_tool_calls_total": ("source", "unasked")},
    ),
    "good manners": (reply("Yes."), {}, {}),
}
LABELS = {
    "manners_thinking_stripped_total": "kind",
    "manners_breach_total": "detector",
    "manners_tool_calls_total": "source",
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", MANNERS)
async def test_manners_are_counted_once_a_reply(home: GatewayFixture, name: str, stream: bool) -> None:
    """Each kind under its own label, and nothing else."""
    steps, fields, expected = MANNERS[name]
    before = await home.metrics()
    home.engine.play(*steps)
    assert (await home.ask(stream=stream, **fields)).status == 200
    await home.booked()
    after = await home.metrics()
    for counter, label in LABELS.items():
        values = after.labels(counter, label)
        gained = {v: after(counter, **{label: v}) - before(counter, **{label: v}) for v in values}
        wanted = dict.fromkeys(expected[counter][1:], 1) if counter in expected else {}
        assert {v: n for v, n in gained.items() if n} == wanted, counter


@pytest_asyncio.fixture(loop_scope="module")
async def lone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway that nobody else uses."""
    async with house(tmp_path_factory.mktemp("state")) as it:
        yield it


async def test_what_an_engine_is_and_whether_it_streams(lone: GatewayFixture) -> None:
    """Ready while it streams, active while it is live, and described by digests and not by paths."""
    scrape = await lone.metrics()
    assert scrape("manners_engine_ready", engine="scripted") == 1
    assert scrape("manners_active_engine", model="annie", engine="scripted") == 1
    described = {
        "engine": "scripted",
        "dialect": "llama-server",
        "driver": "url",
        "artefact_digest": "",
        "image_digest": "",
    }
    assert scrape("manners_engine_info", **described) == 1
    assert scrape("manners_host_memory_available_bytes") > 1 << 20
    assert (scrape("manners_concurrency_limit"), scrape("manners_queue_limit")) == (8, 32)
    assert not [name for name, _ in scrape.samples if name.endswith("_created")]
    await lone.gateway.pool.stop()
    await eventually(lambda: not lone.gateway.pool.is_ready)
    assert (await lone.metrics())("manners_engine_ready", engine="scripted") == 0
    assert (await lone.get(lone.url + "/readyz")).status == 503
