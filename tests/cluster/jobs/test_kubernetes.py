"""Jobs for Kubernetes: valid manifests, an environment that `join` understands, and a small server
of the API. These tests use no real cluster."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.cluster.detection import detected
from graphc.cluster.jobs.kubernetes.manifests import manifests_of, text_of
from graphc.cluster.jobs.kubernetes.submitting import submit
from graphc.cluster.jobs.spec import JobSpec
from graphc.errors import AttributeValueError, ClusterError
from tests.cluster.jobs.jobset_schema import JOBSET

yaml = pytest.importorskip("yaml")
validation = pytest.importorskip("kubernetes_validate")

SMALL = {"script": "train.py", "kubernetes": {"image": "train:1"}}
LARGE = {
    "script": "/app/train.py", "name": "digits", "processes": 4, "devices": 2, "memory": "4GiB",
    "restarts": 3, "time_limit": "90.5s", "grace": 30, "parameters": {"rate": 0.1, "fast": True},
    "arguments": ["$(HOME)", "a b"],
    "kubernetes": {
        "image": "registry.example.com/team/train:1.0@sha256:abc", "namespace": "team",
        "accelerator": "nvidia.com/gpu", "cpu": 1.5, "claim": "checkpoints", "mount": "/data/jobs",
        "service_account": "trainer", "node_selector": {"pool": "gpu"}, "priority_class": "high",
        "queue": "team-queue",
    },
}  # fmt: skip


def check(manifests: list[dict[str, Any]]) -> None:
    """Validates the manifests strictly: an unknown key anywhere is an error."""
    jobset, service = manifests
    jsonschema.validate(jobset, JOBSET)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": jobset["metadata"],
           "spec": replicated["template"]["spec"]}  # fmt: skip
    for version in ("1.30", "1.34"):
        validation.validate(job, version, strict=True)
        validation.validate(service, version, strict=True)


def pod_of(jobset: dict[str, Any]) -> dict[str, Any]:
    return dict(jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"])


@pytest.mark.parametrize(
    "value",
    [SMALL, LARGE, {"train": "a.py", "save": True, "kubernetes": {"image": "x"}},
     {"artifact": "m.gcx", "inputs": {"x": "x.npy"}, "kubernetes": {"image": "x"}}],
)  # fmt: skip
def test_manifests_are_valid(value: dict[str, Any]) -> None:
    manifests = manifests_of(JobSpec.of(value))
    check(manifests)
    assert list(yaml.safe_load_all(text_of(manifests))) == manifests


def test_the_validation_finds_mistakes() -> None:
    for path in (("spec", "network", "dnsHostnames"), ("spec", "replicatedJobs", 0, "replica"),
                 ("spec", "replicatedJobs", 0, "template", "spec", "completion")):  # fmt: skip
        manifests = manifests_of(JobSpec.of(SMALL))
        at: Any = manifests[0]
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = 1
        with pytest.raises((jsonschema.ValidationError, validation.ValidationError)):
            check(manifests)


def test_each_pod_finds_the_others() -> None:
    """The test sets what Kubernetes sets in pod `i` of an indexed Job, with JobSet's Job name."""
    jobset, service = manifests_of(JobSpec.of(LARGE))
    name, pod = jobset["metadata"]["name"], pod_of(jobset)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    given = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    for index in range(4):
        host = f"{name}-{replicated['name']}-0-{index}"
        member = detected(given | {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": host})
        assert member is not None and (member.rank, member.size) == (index, 4)
        # A pod has the address <hostname>.<subdomain> if a service of that name selects it.
        port = service["spec"]["ports"][0]["port"]
        assert member.spec.address("worker", index) == f"{host}.{pod['subdomain']}:{port}"
        assert len(host) <= 63
    assert service["metadata"]["name"] == pod["subdomain"] == name
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": name}
    assert jobset["spec"]["network"] == {"enableDNSHostnames": False}
    assert service["metadata"]["namespace"] == jobset["metadata"]["namespace"] == "team"


def test_what_the_job_says_is_in_the_manifest() -> None:
    jobset, _ = manifests_of(JobSpec.of(LARGE))
    pod = pod_of(jobset)
    (container,) = pod["containers"]
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (4, 4, "Indexed")
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 91)
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 3}
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-queue"
    assert container["command"][4:] == [
        "python", "/app/train.py", "--rate=0.1", "--fast", "$$(HOME)", "a b",
    ]  # fmt: skip
    assert container["resources"] == {
        "requests": {"memory": str(4 << 30), "cpu": "1.5"},
        "limits": {"memory": str(4 << 30), "nvidia.com/gpu": "2"},
    }
    assert container["volumeMounts"] == [{"name": "job", "mountPath": "/data/jobs"}]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "checkpoints"}
    assert pod["terminationGracePeriodSeconds"] == 30
    assert pod["nodeSelector"] == {"pool": "gpu"} and pod["priorityClassName"] == "high"
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["GRAPHC_CHECKPOINT_DIR"] == "/data/jobs/digits/checkpoints"
    assert "JAX_NUM_CPU_DEVICES" not in environment
    (container,) = pod_of(manifests_of(JobSpec.of(SMALL))[0])["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["JAX_NUM_CPU_DEVICES"] == "1"


def test_the_command_makes_the_folder_of_outputs(tmp_path: Path) -> None:
    import subprocess

    command = pod_of(manifests_of(JobSpec.of(SMALL))[0])["containers"][0]["command"]
    folder = tmp_path / "a" / "outputs"
    run = [*command[:4], "sh", "-c", 'echo "$@"', "x", "two words"]
    environment = {"GRAPHC_OUTPUT_DIR": str(folder)}
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.stdout == "two words\n" and folder.is_dir()


def test_all_mistakes_are_told() -> None:
    job = {"script": "a.py", "priority": 1, "deadline": 5, "silence": 5, "restarts": 1,
           "kubernetes": {"imagine": "x", "cpu": "lots", "mount": "relative", "claim": "A_B",
                          "node_selector": {"a": 1}}}  # fmt: skip
    with pytest.raises(AttributeValueError) as caught:
        manifests_of(JobSpec.of(job))
    told = " | ".join(caught.value.details)
    for part in ("kubernetes.imagine: is not a key; did you mean 'image'?", "kubernetes.cpu: must",
                 "kubernetes.mount: must", "kubernetes.claim: must", "kubernetes.node_selector",
                 "kubernetes.image: must", "restarts: need", "priority: is not",
                 "deadline: is not", "silence: is not"):  # fmt: skip
        assert part in told


options = st.fixed_dictionaries(
    {"image": st.sampled_from(["a", "x.example.com:5000/a/b:1"])},
    optional={
        "namespace": st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True),
        "accelerator": st.sampled_from(["nvidia.com/gpu", "google.com/tpu"]),
        "cpu": st.sampled_from([1, 0.5, "250m", "4"]), "claim": st.just("c"),
        "mount": st.just("/x"), "queue": st.just("q"), "node_selector": st.just({"a/b": ""}),
    },
)  # fmt: skip


names = st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)
texts = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))


@settings(max_examples=15, deadline=None)
@given(options, st.integers(1, 1024), st.integers(1, 8), names, texts)
def test_manifests_of_any_job_are_valid(kubernetes, processes, devices, name, arguments) -> None:
    job = {"script": "a.py", "name": name, "processes": processes, "devices": devices,
           "arguments": arguments, "kubernetes": kubernetes}  # fmt: skip
    manifests = manifests_of(JobSpec.of(job))
    check(manifests)
    assert [manifest["kind"] for manifest in manifests] == ["JobSet", "Service"]


# -- a small server of the API ---------------------------------------------------------------------


class Api(ThreadingHTTPServer):
    """Creates JobSets and Services as Kubernetes does, and refuses the paths in `refused`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, Any] = {}
        self.refused: dict[str, int] = {}  # part of a path -> status
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = body["metadata"]["name"]
        self.server.tokens.add(self.headers["authorization"])
        key = f"{self.path}/{name}"
        status = next((s for part, s in self.server.refused.items() if part in self.path), 0)
        if status:
            self.answer(status, {"kind": "Status", "message": f"refused with {status}"})
        elif key in self.server.objects:
            self.answer(409, {"kind": "Status", "message": f'"{name}" already exists'})
        else:
            body["metadata"]["uid"] = f"uid-of-{name}"
            self.server.objects[key] = body
            self.answer(201, body)

    def do_DELETE(self) -> None:
        self.server.objects.pop(self.path)
        self.answer(200, {"kind": "Status", "status": "Success"})

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    kubernetes = pytest.importorskip("kubernetes")
    server = Api()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
    }  # fmt: skip
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setattr(kubernetes.config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
SERVICES = "/api/v1/namespaces/{}/services"


def test_a_job_is_created(api: Api) -> None:
    manifests = manifests_of(JobSpec.of(LARGE))
    assert submit(manifests) == {"name": "digits", "namespace": "team"}
    jobset = api.objects[SETS.format("team") + "/digits"]
    service = api.objects[SERVICES.format("team") + "/digits"]
    assert jobset["spec"] == manifests[0]["spec"] and service["spec"] == manifests[1]["spec"]
    (owner,) = service["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "digits",
                     "uid": "uid-of-digits"}  # fmt: skip
    validation.validate({k: v for k, v in service.items()}, "1.34", strict=True)
    assert api.tokens == {"Bearer secret"}


def test_the_namespace_of_the_context(api: Api) -> None:
    assert submit(manifests_of(JobSpec.of(SMALL)))["namespace"] == "ns"
    assert SETS.format("ns") + "/train" in api.objects


def test_a_job_of_the_same_name(api: Api) -> None:
    submit(manifests_of(JobSpec.of(SMALL)))
    with pytest.raises(ClusterError, match="already exists") as caught:
        submit(manifests_of(JobSpec.of(SMALL)))
    assert "kubectl delete jobset -n ns train" in str(caught.value)
    assert len(api.objects) == 2


@pytest.mark.parametrize(
    ("status", "hint"),
    [(404, "JobSet is perhaps not installed"), (403, "kubectl auth can-i create jobsets -n ns"),
     (401, "kubectl auth can-i"), (422, "--dry-run"), (500, "--dry-run")],
)  # fmt: skip
def test_a_cluster_that_refuses(api: Api, status: int, hint: str) -> None:
    api.refused["jobsets"] = status
    with pytest.raises(ClusterError, match=f"{status}: refused with {status}") as caught:
        submit(manifests_of(JobSpec.of(SMALL)))
    assert hint in str(caught.value) and not api.objects


def test_without_its_service_there_is_no_jobset(api: Api) -> None:
    api.refused["services"] = 403
    with pytest.raises(ClusterError, match="did not create Service"):
        submit(manifests_of(JobSpec.of(SMALL)))
    assert not api.objects


def test_a_cluster_that_does_not_answer(api: Api) -> None:
    api.shutdown()
    api.server_close()
    with pytest.raises(ClusterError, match="the cluster does not answer"):
        submit(manifests_of(JobSpec.of(SMALL)))


def test_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(kubernetes.config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", missing)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="no configuration of a cluster"):
        submit(manifests_of(JobSpec.of(SMALL)))
