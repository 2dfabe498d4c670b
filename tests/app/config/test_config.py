"""The configuration file: the example is the documentation, and every mistake is one clear line."""

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from app.config.config import (
    EMBEDDED_DEFAULT,
    Address,
    ConfigError,
    EngineTable,
    Gates,
    GatewayConfig,
    Log,
    ModelConfig,
    Promotion,
    Telemetry,
    Timeouts,
    load,
    parse,
)
from deploy.engine.spec import Driver
from gates.contracts.dialect import Dialect

EXAMPLE = EMBEDDED_DEFAULT.parent / "manners.example.toml"


def test_the_example_loads() -> None:
    """Its artefacts need not exist: only a driver looks at them."""
    config = load(EXAMPLE, {})
    assert {spec.driver for spec in config.engines.values()} == set(get_args(Driver))
    assert {spec.dialect for spec in config.engines.values()} == set(get_args(Dialect))
    assert config.models["annie"].engines == ("annie-nano", "somebody-elses")


def documented(table: str) -> dict[str, Any]:
    """The keys of one table of the example with their values; None for those commented out."""
    text = EXAMPLE.read_text("utf-8")
    _, _, rest = text.partition(f"\n[{table}]")
    assert rest, table
    body = re.split(r"\n\[", rest)[0]
    names = re.findall(r"^#? ?([a-z_]+) *= ", body, re.MULTILINE)
    value: Any = tomllib.loads(text)
    for part in table.split("."):
        value = value[part]
    assert value.keys() <= set(names) | {"timeouts"}
    return {name: value.get(name) for name in names}


@pytest.mark.parametrize(
    ("table", "model", "elsewhere"),
    [
        ("gateway", GatewayConfig, set()),
        ("models.annie", ModelConfig, {"timeouts"}),
        ("models.annie.timeouts", Timeouts, set()),
        ("gates", Gates, set()),
        ("promotion", Promotion, set()),
        ("telemetry", Telemetry, set()),
        ("log", Log, set()),
    ],
)
def test_the_example_names_every_key_with_its_default(
    table: str, model: type[BaseModel], elsewhere: set[str]
) -> None:
    """A key that is added to the code must be added to the documentation."""
    shown = documented(table)
    assert shown.keys() | elsewhere == model.model_fields.keys()
    for name, value in shown.items():
        default = model.model_fields[name].get_default()
        value = tuple(value) if isinstance(value, list) else value
        if name not in ("live", "fallback"):
            assert value == default, f"{table}.{name}"


def test_the_example_names_every_key_of_an_engine() -> None:
    """Over the drivers, since none takes them all."""
    tables = ("engines.annie-nano", "engines.spark-nvfp4", "engines.own-vllm", "engines.somebody-elses")
    assert set().union(*(documented(table) for table in tables)) == EngineTable.model_fields.keys()


def tables(**changes: Any) -> dict[str, Any]:
    """A small good configuration with some tables replaced."""
    engine = {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:9"}
    return {"engines": {"far": engine}, "models": {"annie": {"live": "far"}}, **changes}


def engine(**table: Any) -> dict[str, Any]:
    """That configuration with this engine."""
    return tables(engines={"far": {"dialect": "vllm", "driver": "url", "url": "http://x:9", **table}})


def model(**table: Any) -> dict[str, Any]:
    """That configuration with these keys of the model."""
    return tables(models={"annie": {"live": "far", **table}})


WRONG: list[tuple[dict[str, Any], str]] = [
    # unknown keys, and what was meant
    (tables(gatway={}), r"^gatway: unknown key; did you mean 'gateway'\?$"),
    (tables(gateway={"zzz": 1}), r"^gateway.zzz: unknown key; known: admin, admin_token_file, "),
    (tables(secrets={"admin_token": "x"}), r"^secrets: unknown key; secrets come from the environment"),
    (model(thinkng="off"), r"^models.annie.thinkng: unknown key; did you mean 'thinking'\?$"),
    (model(timeouts={"idel": 1}), r"^models.annie.timeouts.idel: unknown key; did you mean 'idle'\?$"),
    (engine(artifact="x"), r"^engines.far.artifact: unknown key; did you mean 'artefact'\?$"),
    # values
    ({}, r"^models: field required$"),
    (tables(engines=[]), r"^engines: input should be a valid dictionary$"),
    (tables(engines={"far": "http://x"}), r"^engines.far: input should be a valid dictionary"),
    (tables(engines={}), r"^models.annie: there is no engine 'far'"),
    (model(live=["far", "far"]), r"^models.annie.live: 'far' is named twice$"),
    (model(baseline="near"), r"^models.annie: there is no engine 'near'"),
    (tables(telemetry={"otlp_endpoint": "collector"}), r"^telemetry.otlp_endpoint: 'collector' must be http"),
    (tables(models={"An nie": {"live": "far"}}), r"^models.An nie: a model's name must match"),
    (model(thinking=True), r"^models.annie.thinking.*: input should be "),
    (model(timeouts={"total": float("inf")}), r"^models.annie.timeouts.total: "),
    (tables(gateway={"limits": "http://x"}), r"^gateway.limits: string should match pattern .*rediss"),
    (tables(gateway={"listen": "8080"}), r"^gateway.listen: '8080' must be HOST:PORT$"),
    (
        tables(gateway={"admin": "127.0.0.1:8080"}),
        r"^gateway.admin: must not be the address of gateway.listen$",
    ),
    (tables(gateway={"state": "~no-such-user-here/x"}), r"^gateway.state: .*no such home directory$"),
    (
        engine(dialect="klingon"),
        rf"^engines.far.dialect: must be one of {', '.join(get_args(Dialect))}, not 'klingon'$",
    ),
    (engine(args="--x"), r"^engines.far.args: input should be a valid tuple$"),
    (engine(driver="docker", url=None, image="vllm:latest"), r"^engines.far.image: .*not pinned"),
    (tables(promotion={"shift_weights": [25, 5]}), r"^promotion.shift_weights: each weight must be higher"),
    (tables(engines={"far": {"dialect": "vllm"}}), r"^engines.far.driver: field required$"),
]


@pytest.mark.parametrize(("data", "line"), WRONG)
def test_a_mistake_is_one_line_that_says_where_and_what(
    data: dict[str, Any], line: str, tmp_path: Path
) -> None:
    """The nearest right key is named; no traceback, no second line."""
    for table in data.get("engines", {}).values() if isinstance(data.get("engines"), dict) else ():
        if isinstance(table, dict) and table.get("url", "") is None:
            del table["url"]
    with pytest.raises(ConfigError) as caught:
        parse(data, tmp_path)
    assert re.search(line, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("program", "absolute"), [("../venv/bin/vllm", "/a/venv/bin/vllm"), ("vllm", "vllm"), ("/b/../c", "/c")]
)
def test_a_command_is_relative_to_the_file_or_looked_for_on_path(program: str, absolute: str) -> None:
    """A virtual environment's python stays what it is, and no link is followed: the environment lies beside it."""
    table = {"dialect": "vllm", "driver": "process", "artefact": "m", "command": [program, "serve"]}
    found = parse(tables(engines={"far": table}), Path("/a/b"))
    assert found.engines["far"].command == (absolute, "serve")


def write(folder: Path, text: str, **files: str) -> Path:
    """A configuration file, and others beside it."""
    for name, content in files.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    path = folder / "manners.toml"
    path.write_text(text)
    return path


GOOD = '[engines.far]\ndialect = "vllm"\ndriver = "url"\nurl = "http://x:9"\n[models.annie]\nlive = "far"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a = = b", "not TOML"),
        (b"a = '\xff'", "not TOML"),
        (b"a = " + b"[" * 100_000, "not TOML"),
        (b"a = " + b"{a=" * 5000, "not TOML"),
        (b"[gateway]\nlisten = " + b"9" * 5000, "not TOML"),
        (b"a = 1\n" * 200_000, "larger than"),
        (
            b'[gateway]\napi_keys_file = "none.txt"\n' + GOOD.encode(),
            "gateway.api_keys_file: none.txt: No such file",
        ),
        (
            b'[gateway]\nadmin_token_file = "."\n' + GOOD.encode(),
            "gateway.admin_token_file: .: Is a directory",
        ),
    ],
    ids=["syntax", "no text", "lists", "tables", "digits", "megabytes", "no key file", "a folder"],
)
def test_a_file_that_cannot_be_used_is_one_line_that_names_it(text: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "manners.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=line) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    """Keys of both are taken; blanks, blank lines and comments are none; a token's file wins."""
    plain = load(write(tmp_path, GOOD), {"MANNERS_API_KEYS": " a, b ,,", "MANNERS_ADMIN_TOKEN": "t"})
    assert (plain.secrets.api_keys, plain.secrets.admin_token) == (("a", "b"), "t")
    text = '[gateway]\napi_keys_file = "keys"\nadmin_token_file = "token"\n' + GOOD
    path = write(
        tmp_path, text, keys="# of Annie\nc\n\n d # of the kitchen, too\n  #e\n", token="from-file\n"
    )
    both = load(path, {"MANNERS_API_KEYS": "a", "MANNERS_ADMIN_TOKEN": "t"})
    assert (both.secrets.api_keys, both.secrets.admin_token) == (("a", "c", "d"), "from-file")
    none = load(write(tmp_path, GOOD), {})
    assert (none.secrets.api_keys, none.secrets.admin_token) == ((), None)
    assert "from-file" not in repr(both) and "'a'" not in repr(both)


@pytest.mark.parametrize("mode, is_taken", [(0o600, True), (0o440, True), (0o604, False), (0o620, False)])
@pytest.mark.parametrize("key", ["api_keys_file", "admin_token_file"])
def test_a_secret_that_others_can_open_is_refused_with_the_cure(
    tmp_path: Path, key: str, mode: int, is_taken: bool
) -> None:
    path = write(tmp_path, f'[gateway]\n{key} = "secret"\n' + GOOD, secret="s\n")
    (tmp_path / "secret").chmod(mode)
    if is_taken:
        assert "s" in (*load(path, {}).secrets.api_keys, load(path, {}).secrets.admin_token)
    else:
        with pytest.raises(ConfigError, match=f"gateway.{key}: .*mode {mode:o}.*chmod 600 {tmp_path}/secret"):
            load(path, {})


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Wherever the command was called."""
    text = '[gateway]\nstate = "here"\n' + GOOD.replace("[models", 'artefact = "../weights"\n[models')
    config = load(write(tmp_path, text), {})
    assert config.state_dir == tmp_path / "here"
    assert config.engines["far"].artefact == tmp_path.parent / "weights"
    assert load(write(tmp_path, GOOD), {}).state_dir == Path("~/.local/state/manners").expanduser()


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "0.0.0.0:1", "[::]:1", "localhost.a.org:1"],
)
def test_loopback_is_what_only_this_machine_reaches(text: str, tmp_path: Path) -> None:
    """By address, not by looks."""
    address: Address = parse(tables(gateway={"listen": text, "admin": "127.0.0.1:2"}), tmp_path).listen
    assert address.is_loopback is not text.startswith(("0.", "[::]", "localhost."))
    assert str(address) == text
