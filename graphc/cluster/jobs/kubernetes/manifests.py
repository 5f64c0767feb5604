"""The manifests of a job: a JobSet of one indexed Job, and the headless Service of its pods.

`gc.cluster.join()` finds the others by GRAPHC_SERVICE and GRAPHC_WORKERS: pod `i` of job NAME has
the address NAME-workers-0-i.NAME. JobSet (API jobset.x-k8s.io/v1alpha2, jobset.sigs.k8s.io) creates
all pods anew if one fails, as `graphc launch --restarts` does on one machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from graphc.cluster.detection import PORT
from graphc.cluster.jobs.reading import read_keys
from graphc.cluster.jobs.runs import Places, graphc_command
from graphc.cluster.jobs.spec import JobSpec, text_like
from graphc.errors import AttributeValueError, MissingExtraError, nearest

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"
WORKERS: Final = "workers"
"""The name of the replicated job."""

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label that JobSet gives to the pods of a set."""

_EXAMPLE: Final = (
    'a job for Kubernetes has\n    kubernetes: {image: "registry.example.com/train:1"}'
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_IMAGE: Final = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,500}", re.ASCII)
_PATH: Final = re.compile(r"(/[\w.-]+)+", re.ASCII)
_MOUNT: Final = "/job"
_SHELL: Final = 'mkdir -p "$GRAPHC_OUTPUT_DIR" && exec "$@"'

Manifest = dict[str, Any]


def manifests_of(spec: JobSpec) -> list[Manifest]:
    """The JobSet and the Service of a job.

    Raises:
        AttributeValueError: the job lacks an image, or has what Kubernetes cannot do. The error
            lists all mistakes.

    Examples:
        >>> from graphc.cluster.jobs.kubernetes.manifests import manifests_of
        >>> from graphc.cluster.jobs.spec import JobSpec
        >>> job = {"script": "train.py", "processes": 4, "kubernetes": {"image": "train:1"}}
        >>> [manifest["kind"] for manifest in manifests_of(JobSpec.of(job))]
        ['JobSet', 'Service']
    """
    options = _options(spec)
    return [_jobset(spec, options), _service(spec, options)]


def text_of(manifests: list[Manifest]) -> str:
    """The manifests as YAML, as `kubectl apply -f` reads it.

    Raises:
        MissingExtraError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            "manifests are written as YAML, which needs PyYAML", hint="pip install 'graphc[k8s]'"
        ) from None
    text: str = yaml.safe_dump_all(manifests, sort_keys=False)
    return text


def _metadata(spec: JobSpec, options: Mapping[str, Any]) -> Manifest:
    labels = {"app.kubernetes.io/name": spec.name, "app.kubernetes.io/managed-by": "graphc"}
    if "queue" in options:
        labels["kueue.x-k8s.io/queue-name"] = options["queue"]
    found: Manifest = {"name": spec.name, "labels": labels}
    if "namespace" in options:
        found["namespace"] = options["namespace"]
    return found


def _service(spec: JobSpec, options: Mapping[str, Any]) -> Manifest:
    metadata = _metadata(spec, {k: v for k, v in options.items() if k != "queue"})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # the processes meet before they are ready
            "selector": {JOBSET_NAME: spec.name},
            "ports": [{"name": "coordinator", "port": PORT, "targetPort": PORT}],
        },
    }


def _jobset(spec: JobSpec, options: Mapping[str, Any]) -> Manifest:
    job: Manifest = {
        "completionMode": "Indexed",
        "completions": spec.processes,
        "parallelism": spec.processes,
        "backoffLimit": 0,  # a pod cannot join the others again; JobSet starts all anew
        "template": {"spec": _pod(spec, options)},
    }
    if spec.time_limit is not None:
        job["activeDeadlineSeconds"] = math.ceil(spec.time_limit)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "JobSet",
        "metadata": _metadata(spec, options),
        "spec": {
            "network": {"enableDNSHostnames": False},  # the Service is ours
            "failurePolicy": {"maxRestarts": spec.restarts},
            "replicatedJobs": [{"name": WORKERS, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _pod(spec: JobSpec, options: Mapping[str, Any]) -> Manifest:
    volume: Manifest = {"name": "job", "emptyDir": {}}
    if "claim" in options:
        volume = {"name": "job", "persistentVolumeClaim": {"claimName": options["claim"]}}
    found: Manifest = {
        "restartPolicy": "Never",
        "subdomain": spec.name,
        "terminationGracePeriodSeconds": math.ceil(spec.grace),
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(spec, options)],
        "volumes": [volume],
    }
    names = {"service_account": "serviceAccountName", "priority_class": "priorityClassName",
             "node_selector": "nodeSelector"}  # fmt: skip
    return found | {theirs: options[ours] for ours, theirs in names.items() if ours in options}


def _container(spec: JobSpec, options: Mapping[str, Any]) -> Manifest:
    mount = options.get("mount", _MOUNT)
    places = Places.below(PurePosixPath(mount) / spec.name)
    environment = {
        "GRAPHC_SERVICE": spec.name,
        "GRAPHC_WORKERS": str(spec.processes),
        "PYTHONUNBUFFERED": "1",
        **places.environment,
    }
    resources: dict[str, dict[str, str]] = {}
    if spec.memory is not None:
        resources = {
            "requests": {"memory": str(spec.memory)},
            "limits": {"memory": str(spec.memory)},
        }
    if "cpu" in options:
        resources.setdefault("requests", {})["cpu"] = options["cpu"]
    if "accelerator" in options:
        resources.setdefault("limits", {})[options["accelerator"]] = str(spec.devices)
    else:
        environment["JAX_NUM_CPU_DEVICES"] = str(spec.devices)
    return {
        "name": "worker",
        "image": options["image"],
        "command": _command(spec, places),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": "coordinator", "containerPort": PORT}],
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "job", "mountPath": mount}],
    }


def _command(spec: JobSpec, places: Places) -> list[str]:
    """The command in the container, where the program has the path that the job file gives.

    `$(NAME)` would be replaced by a variable; `$$` is a dollar sign.
    """
    if spec.kind == "script":
        found = ["python", spec.program, *spec.command_arguments]
    else:
        inputs = {name: PurePosixPath(path) for name, path in spec.inputs.items()}
        own = graphc_command(spec, PurePosixPath(spec.program), inputs, places)
        found = ["python", "-m", "graphc", *own]
    return ["/bin/sh", "-c", _SHELL, "job", *(part.replace("$(", "$$(") for part in found)]


# -- what only Kubernetes needs --------------------------------------------------------------------


def _options(spec: JobSpec) -> dict[str, Any]:
    """The checked keys of `kubernetes`."""
    found, mistakes = read_keys(
        spec.kubernetes or {},
        _READERS,
        lambda key: f"kubernetes.{key[:60]}: is not a key; {nearest(key[:60], _READERS)}",
        lambda key, value, why: f"kubernetes.{key}: must be {why}; got {str(value)[:80]!r}",
    )
    if "image" not in (spec.kubernetes or {}):
        mistakes.append("kubernetes.image: must name the image of the containers")
    if spec.restarts and "claim" not in found:
        mistakes.append("restarts: need kubernetes.claim, a volume that keeps the checkpoints")
    for key, hint in _OTHERWISE.items():
        if getattr(spec, key):
            mistakes.append(f"{key}: is not for Kubernetes; {hint}")
    if mistakes:
        raise AttributeValueError(
            "the job cannot be submitted to Kubernetes", details=mistakes, hint=_EXAMPLE
        )
    return found


_OTHERWISE: Final = {
    "priority": "use kubernetes.priority_class",
    "deadline": "use time_limit",
    "silence": "use time_limit",
}


def _cpu(value: object) -> str:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,4}(\.\d{1,3})?|[1-9]\d{0,6}m", text):
        raise ValueError('a number of processors such as 4 or "500m"')
    return text


def _selector(value: object) -> dict[str, str]:
    right = isinstance(value, Mapping) and all(
        isinstance(key, str) and _KEY.fullmatch(key)
        and isinstance(each, str) and _VALUE.fullmatch(each)
        for key, each in value.items()
    )  # fmt: skip
    if not right or not isinstance(value, Mapping):
        raise ValueError(f"a mapping of labels to texts, such as {json.dumps({'pool': 'gpu'})}")
    return dict(value)


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "image": text_like(_IMAGE, "the name of an image"),
    "namespace": text_like(_LABEL, "the name of a namespace"),
    "accelerator": text_like(_KEY, 'a resource such as "nvidia.com/gpu"'),
    "cpu": _cpu,
    "claim": text_like(_NAME, "the name of a PersistentVolumeClaim"),
    "mount": text_like(_PATH, "an absolute path"),
    "service_account": text_like(_NAME, "the name of a ServiceAccount"),
    "node_selector": _selector,
    "priority_class": text_like(_NAME, "the name of a PriorityClass"),
    "queue": text_like(_LABEL, "the name of a LocalQueue of Kueue"),
}
