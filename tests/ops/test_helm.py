"""The Helm chart: what it makes of three sets of values is written down, valid, and what the gateway takes."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.config import ConfigSection, EngineTable, GatewayConfig, ModelConfig, load
from app.config.version import VERSION
from app.telemetry.metrics import Metrics
from tests.ops.facts import DASHBOARDS, PROMETHEUS, ROOT, samples, unknown

pytestmark = pytest.mark.ops

HELM, CHART, GOLDEN = ROOT / ".work/helm", ROOT / "deploy/helm/manners", Path(__file__).parent / "helm"
MODELS: tuple[type[ConfigSection], ...] = (GatewayConfig, EngineTable, ModelConfig)
SETS = ("cluster", "minimal", "trial")
SECRETS = dict.fromkeys(("api_keys", "admin_token", "vllm"), "a-secret")
NOT_OF_VALUES = {"listen", "admin", "state", "api_keys_file", "admin_token_file", "image", "gpu", "command"}


def run(*argv: object) -> "subprocess.CompletedProcess[str]":
    words, environ = [str(word) for word in argv], {**os.environ, "PYTHONPATH": str(HELM / "site")}
    return subprocess.run(words, cwd=CHART.parent, env=environ, capture_output=True, text=True, timeout=60)


def helm(words: str, name: str) -> "subprocess.CompletedProcess[str]":
    return run(HELM / "helm/helm", *words.split(), "--values", f"manners/ci/{name}-values.yaml")


@cache
def rendered(name: str) -> str:
    done = helm("template house manners --namespace voice", name)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(name: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(rendered(name)) if one and one["kind"] == kind]


@pytest.mark.parametrize("name", SETS)
def test_what_is_rendered_is_as_written_down(name: str) -> None:
    """But for rules and dashboards, which are files of their own. `make test-ops GOLDEN=write` writes it again."""
    parts = re.split(r"^---\n", rendered(name), flags=re.MULTILINE)
    text = "---\n".join(one for one in parts if not re.search(r"templates/(prometheusrule|dashboards)", one))
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / f"{name}.yaml").write_text(text, "utf-8")
    assert text == (GOLDEN / f"{name}.yaml").read_text("utf-8")


@pytest.mark.parametrize("name", SETS)
def test_helm_and_the_schemas_of_kubernetes_find_no_fault(name: str, tmp_path: Path) -> None:
    assert (done := helm("lint manners --strict", name)).returncode == 0, done.stdout
    path, misspelt = tmp_path / "all.yaml", rendered(name).replace("runAsNonRoot", "runAsNonroot")
    for text, fault in ((rendered(name), 0), (misspelt, 1)):
        path.write_text(text, "utf-8")
        done = run(sys.executable, "-m", "kubernetes_validate", "--strict", "-k", "1.32", path)
        assert done.returncode == fault, done.stdout


@pytest.mark.parametrize("name", SETS)
def test_the_gateway_takes_the_configuration(name: str, tmp_path: Path) -> None:
    """With the volumes of its pod, as they are mounted, in a folder."""
    (pod,) = [one["spec"]["template"]["spec"] for one in objects(name, "StatefulSet")]
    places = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    texts = {one["metadata"]["name"]: one["data"] for one in objects(name, "ConfigMap")}
    for volume in pod["volumes"]:
        source = volume.get("configMap") or volume.get("secret") or {}
        paths = {item["key"]: item["path"] for item in source.get("items", [])}
        for key, text in texts.get(source.get("name"), SECRETS).items():
            path = tmp_path / places[volume["name"]].strip("/") / paths.get(key, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(re.sub(r'"(?=/etc|/run)', f'"{tmp_path}', text))
            path.chmod(source.get("defaultMode", 0o644))
    config = load(tmp_path / "etc/manners/manners.toml", {})
    assert not config.listen.is_loopback and config.secrets.api_keys == ("a-secret",)
    own = config.gateway.lame_duck + config.gateway.drain_seconds
    assert pod["terminationGracePeriodSeconds"] > own


def test_it_brings_the_alerts_and_the_dashboards_that_are_shipped() -> None:
    found = [one["spec"] for one in objects("cluster", "PrometheusRule")]
    assert found == [yaml.safe_load(path.read_text()) for path in sorted((PROMETHEUS / "rules").iterdir())]
    shown = [
        one for one in objects("cluster", "ConfigMap") if "grafana_dashboard" in one["metadata"]["labels"]
    ]
    assert [json.loads(text) for one in shown for text in one["data"].values()] == DASHBOARDS


def test_it_scales_engines_by_metrics_that_exist() -> None:
    """KEDA's schema is not at hand: the golden file was compared with its resource definition, strictly, by hand."""
    (scaled,) = [one["spec"] for one in objects("cluster", "ScaledObject")]
    queries = [trigger["metadata"]["query"] for trigger in scaled["triggers"]]
    assert not any(unknown(query, samples(Metrics())) for query in queries)
    wanted = helm("template house manners --set scaling.prometheusUrl=", "cluster")
    assert wanted.returncode and "scaling.prometheusUrl" in wanted.stderr


@pytest.mark.parametrize(
    "key", ["gate.enable", "scaling.engine", "config.gateway.listen", "config.models.annie.concurency"]
)
def test_a_misspelt_value_is_refused(key: str) -> None:
    done = helm(f"template house manners --set {key}=true", "minimal")
    assert done.returncode and f"Additional property {key.rpartition('.')[2]} is not allowed" in done.stderr


def test_the_schema_has_every_key_of_the_configuration() -> None:
    config = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    tables = [config["gateway"], *(config[name]["additionalProperties"] for name in ("engines", "models"))]
    for table, model in zip(tables, MODELS, strict=True):
        assert set(table["properties"]) == set(model.model_fields) - NOT_OF_VALUES
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION
