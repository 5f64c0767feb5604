"""Creates the manifests of a job in a cluster, with the official client of Kubernetes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from graphc.cluster.jobs.kubernetes.manifests import GROUP, VERSION, Manifest
from graphc.errors import ClusterError, MissingExtraError

_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT: Final = 30  # seconds


def submit(manifests: list[Manifest]) -> dict[str, str]:
    """Creates the JobSet and the Service. The cluster and the user are those of kubectl, or in a
    pod those of its service account. If the Service cannot be created, neither is.

    Returns:
        `name` and `namespace`.

    Raises:
        MissingExtraError: the extra `k8s` is not installed.
        ClusterError: there is no configuration, the cluster does not answer, or it refuses.
    """
    try:
        import kubernetes
    except ImportError:
        raise MissingExtraError(
            "submitting to Kubernetes needs its client",
            hint="pip install 'graphc[k8s]'; or --dry-run, and kubectl apply -f",
        ) from None
    library: Any = kubernetes  # typed in part
    _configure(library.config)
    jobset, service = manifests
    name = jobset["metadata"]["name"]
    namespace = jobset["metadata"].get("namespace") or _current_namespace()
    configuration = library.client.Configuration.get_default_copy()
    configuration.retries = False  # the user sees at once that the cluster does not answer
    client = library.client.ApiClient(configuration)
    sets = library.client.CustomObjectsApi(client)
    created = _create(
        "JobSet", name, namespace, sets.create_namespaced_custom_object,
        (GROUP, VERSION, namespace, "jobsets", jobset),
    )  # fmt: skip
    try:
        _create(
            "Service", name, namespace,
            library.client.CoreV1Api(client).create_namespaced_service,
            (namespace, _owned(service, created)),
        )  # fmt: skip
    except BaseException:
        with suppress(Exception):
            sets.delete_namespaced_custom_object(GROUP, VERSION, namespace, "jobsets", name)
        raise
    return {"name": name, "namespace": namespace}


def _configure(config: Any) -> None:
    """Reads kubectl's configuration; in a pod without one, that of its service account."""
    try:
        config.load_kube_config()
    except config.ConfigException as error:
        try:
            config.load_incluster_config()
        except config.ConfigException:
            raise ClusterError(
                f"there is no configuration of a cluster: {error}",
                hint="kubectl config current-context should name one; KUBECONFIG names its file",
            ) from None


def _owned(service: Manifest, jobset: Any) -> Manifest:
    """The Service, which Kubernetes deletes with its JobSet."""
    owner = {
        "apiVersion": jobset["apiVersion"],
        "kind": jobset["kind"],
        "name": jobset["metadata"]["name"],
        "uid": jobset["metadata"]["uid"],
    }
    return service | {"metadata": service["metadata"] | {"ownerReferences": [owner]}}


def _create(kind: str, name: str, namespace: str, create: Any, arguments: tuple[Any, ...]) -> Any:
    import kubernetes
    import urllib3

    try:
        return create(*arguments, _request_timeout=_TIMEOUT)
    except kubernetes.client.ApiException as error:
        raise ClusterError(
            f"Kubernetes did not create {kind} {name!r} in namespace {namespace!r}: "
            f"{_message(error)}",
            hint=_hint(error.status, kind, name, namespace),
        ) from None
    except urllib3.exceptions.HTTPError as error:
        raise ClusterError(
            f"the cluster does not answer: {error}", hint="kubectl cluster-info"
        ) from None


def _message(error: Any) -> str:
    try:
        return f"{error.status}: {json.loads(error.body)['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


def _hint(status: int, kind: str, name: str, namespace: str) -> str:
    if status == 409:
        return f"kubectl delete {kind.lower()} -n {namespace} {name}; or give the job another name"
    if status == 404 and kind == "JobSet":
        return "JobSet is perhaps not installed in the cluster (see jobset.sigs.k8s.io)"
    if status in (401, 403):
        return f"kubectl auth can-i create {kind.lower()}s -n {namespace}"
    return "graphc submit FILE --to kubernetes --dry-run shows the manifests"


def _current_namespace() -> str:
    """The namespace of kubectl's context; in a pod, that of the pod."""
    import kubernetes

    config: Any = kubernetes.config
    with suppress(config.ConfigException):
        _, current = config.list_kube_config_contexts()
        return str(current["context"].get("namespace") or "default")
    with suppress(OSError):
        return _NAMESPACE.read_text().strip()
    return "default"
