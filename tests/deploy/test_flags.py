"""llama-server's flags become settings by one table."""

import pytest

from deploy.core.errors import FlagError
from deploy.engine.flags import DEFAULTS, FLAGS, USER_BITS, Settings, parse_flags


def settings(*args: str, cores: int = 2) -> Settings:
    """What these words change in the defaults."""
    parsed = parse_flags("e", args, cores=cores)
    return {key: value for key, value in parsed.items() if DEFAULTS.get(key) != value}


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        (("--ctx-size", "8192"), "n_ctx", 8192),
        (("-c", "8192"), "n_ctx", 8192),
        (("--ctx-size=8192",), "n_ctx", 8192),
        (("--ctx-size=8192",), "kv_unified", True),
        (("--kv-unified",), "kv_unified", True),
        (("--reasoning-budget", "-1"), "sampling.reasoning_budget_tokens", -1),
        (
            ("--reasoning-format", "none"),
            "reasoning_format",
            "COMMON_REASONING_FORMAT_NONE",
        ),
        (("--reasoning", "off"), "enable_reasoning", 0),
        (("--no-jinja",), "use_jinja", False),
        (("--pooling", "mean"), "pooling_type", "LLAMA_POOLING_TYPE_MEAN"),
        (("--flash-attn", "on"), "flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_ENABLED"),
        (
            ("--chat-template-kwargs", '{"enable_thinking": false}'),
            "default_template_kwargs",
            {"enable_thinking": "false"},
        ),
        (("--temp", "0.5"), USER_BITS, "TEMP"),
    ],
)
def test_a_flag_sets_its_field(args: tuple[str, ...], field: str, value: object) -> None:
    assert settings(*args)[field] == value


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--ctx-sise", "1"), "did you mean --ctx-size"),
        (("--zzz",), "not a flag that the embedded engine knows$"),
        (("8192",), "not a flag"),
        (("--ctx-size",), "needs a value"),
        (("--ctx-size", "much"), "must be a whole number, not 'much'"),
        (("--temp", "hot"), "must be a number"),
        (("--reasoning-format", "x"), "one of auto, none, deepseek, deepseek-legacy"),
        (("--jinja=1",), "takes no value"),
        (("--jinja", "--no-jinja"), "given twice, or with its opposite"),
        (("-c", "1", "--ctx-size", "2"), "given twice"),
        (("--port", "80"), "set by the supervisor"),
        (("--model", "x"), "set by the artefact"),
        (("--verbose",), "set by privacy"),
        (("--chat-template-kwargs", "[]"), "must be a JSON object"),
    ],
)
def test_a_wrong_flag_is_one_clear_error(args: tuple[str, ...], why: str) -> None:
    with pytest.raises(FlagError, match=why) as caught:
        settings(*args)
    assert "\n" not in str(caught.value)
    assert caught.value.engine == "e"


@pytest.mark.engine
def test_every_field_of_the_table_exists_in_llama_cpp() -> None:
    xllamacpp = pytest.importorskip("xllamacpp", reason="make test")
    from deploy.drivers.llama_child import build_params

    words = {
        "int": "1",
        "float": "1.0",
        "str": "x",
        "json": '{"a": 1}',
        "cache_type": "q8_0",
        "pooling": "mean",
    }
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    for flag in FLAGS:
        if flag.field == "chat_template_file":
            continue
        args = [flag.names[0], *([words.get(flag.value, "auto")] if flag.value else [])]
        build_params(xllamacpp, "m.gguf", "a", parse_flags("e", tuple(args), cores=2))
