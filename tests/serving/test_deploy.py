"""The Dockerfile and the Kubernetes example are valid and match the server."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from graphc.cli.arguments import parse
from graphc.cli.serve import config_of
from graphc.serving import Latest, ModelConfig, Server, ServerConfig
from tests.serving.fakes import manager
from tests.serving.test_operations import get

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RESOURCES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def resource(kind: str) -> Any:
    (found,) = [each for each in RESOURCES if each["kind"] == kind]
    return found


POD = resource("Deployment")["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]


# -- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_the_resources_are_valid(version: str) -> None:
    validation = pytest.importorskip("kubernetes_validate")
    for each in RESOURCES:
        validation.validate(each, version, strict=True)
    wrong = resource("Deployment") | {"spec": {"replica": 2}}
    with pytest.raises(validation.ValidationError):
        validation.validate(wrong, version, strict=True)


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    """The server configuration from the container's arguments and mounted files."""
    files = resource("ConfigMap")["data"] | resource("Secret")["stringData"]
    arguments = CONTAINER["args"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        arguments = [re.sub(f"=/(config|secrets)/{name}$", f"={tmp_path}/{name}", each)
                     for each in arguments]  # fmt: skip
    assert not [each for each in arguments if re.search("=/(config|secrets)/", each)]
    entry = instructions()[-1]["ENTRYPOINT"]
    return config_of(parse([*json.loads(entry)[1:], *arguments]))


def test_the_arguments(config: ServerConfig) -> None:
    assert config.models == (ModelConfig("flowers", "/models/flowers", Latest(2)),)
    assert config.host == "0.0.0.0" and config.tokens and config.batching is not None
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert ports == {"grpc": config.port, "rest": config.rest_port}
    for port in resource("Service")["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]


def test_the_server_has_time_to_drain(config: ServerConfig) -> None:
    (_, wait) = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["spec"]["terminationGracePeriodSeconds"] >= int(wait) + config.drain_seconds + 15
    ready = CONTAINER["readinessProbe"]
    assert int(wait) >= ready["periodSeconds"] * ready["failureThreshold"]


def test_the_probes_need_no_token() -> None:
    config = ServerConfig((), port=None, rest_port=0, tokens=("secret",))
    with Server(config, manager=manager()) as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = CONTAINER[probe]["httpGet"]
            assert asked["port"] == "rest" and get(server, asked["path"])[0] == 200


def test_names_agree() -> None:
    labels = POD["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert resource(kind)["spec"]["selector"]["matchLabels"] == labels
    assert resource("Service")["spec"]["selector"] == labels
    target = resource("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == resource("Deployment")["metadata"]["name"]
    volumes = {each["name"]: each for each in POD["spec"]["volumes"]}
    assert volumes.keys() == {each["name"] for each in CONTAINER["volumeMounts"]}
    assert volumes["config"]["configMap"]["name"] == resource("ConfigMap")["metadata"]["name"]
    assert volumes["tokens"]["secret"]["secretName"] == resource("Secret")["metadata"]["name"]


# -- the image ------------------------------------------------------------------------------------


def instructions() -> list[dict[str, str]]:
    """The instructions of each stage: name -> text. The texts of a repeated one are joined."""
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    stages: list[dict[str, str]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            stages.append({})
        stages[-1][name] = f"{stages[-1].get(name, '')}\n{rest}".strip()
    return stages


def test_the_image_is_built_from_files_that_exist() -> None:
    build, final = instructions()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
             "ENTRYPOINT", "CMD"}  # fmt: skip
    assert known >= build.keys() | final.keys()
    allowed = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {name for line in build["COPY"].splitlines() for name in line.split()[:-1]}
    assert copied == allowed and all((ROOT / name).exists() for name in copied)
    for link in ("passes", "devices"):
        assert (ROOT / "graphc" / link).resolve().parent == ROOT and link in copied
    for stage in (build, final):
        assert re.match(r"python:3\.\d+-slim( AS build)?$", stage["FROM"])  # never `latest`
    for path in re.findall(r"--from=build (\S+) (\S+)", final["COPY"]):
        assert path[0] == path[1] and path[0] in build["RUN"]  # scripts name their interpreter


def test_the_image_runs_the_server_as_nobody_in_particular() -> None:
    _, final = instructions()
    user = POD["spec"]["securityContext"]["runAsUser"]
    assert final["USER"] == f"{user}:{user}" and f"--uid {user} " in final["RUN"]
    assert final["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(final["ENTRYPOINT"])[:2] == ["graphc", "serve"]  # no shell around it
    assert final["EXPOSE"].split() == ["8500", "8501"]
    assert f"XDG_CACHE_HOME={CONTAINER['volumeMounts'][3]['mountPath']}" in final["ENV"]
    assert parse(["serve", *json.loads(final["ENTRYPOINT"])[2:], "m.gcx"]).host == "0.0.0.0"


def test_the_health_check_of_the_image() -> None:
    command = json.loads(instructions()[-1]["HEALTHCHECK"].partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    config = ServerConfig((), port=None, rest_port=0, tokens=("secret",))
    with Server(config, manager=manager()) as server:
        script = command[2].replace(":8501", f":{server.rest_port}")
        assert script != command[2]
        exec(script)
    with pytest.raises(urllib.error.URLError):
        exec(script)
