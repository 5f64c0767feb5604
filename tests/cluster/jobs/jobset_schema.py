"""A JSON schema of JobSet, written from the public documentation of its API, version v1alpha2
(jobset.sigs.k8s.io, "JobSet API reference", and api/jobset/v1alpha2/jobset_types.go of
kubernetes-sigs/jobset). The template of a job is not described here: it is a `batch/v1` JobSpec,
which the tests validate as a Job.
"""

from typing import Any

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required),
            "additionalProperties": False}  # fmt: skip


METADATA = _object(
    {"name": _NAME, "namespace": _NAME, "labels": _LABELS, "annotations": {"type": "object"}},
    "name",
)
NETWORK = _object(
    {
        "enableDNSHostnames": {"type": "boolean"},
        "subdomain": _NAME,
        "publishNotReadyAddresses": {"type": "boolean"},
    }
)
FAILURE_POLICY = _object(
    {
        "maxRestarts": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "restartStrategy": {"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
        "rules": {"type": "array", "maxItems": 20},
    }
)
SUCCESS_POLICY = _object(
    {
        "operator": {"enum": ["All", "Any"]},
        "targetReplicatedJobs": {"type": "array", "items": {"type": "string"}},
    },
    "operator",
)
REPLICATED_JOB = _object(
    {
        "name": _NAME,
        "groupName": {"type": "string"},
        "replicas": {"type": "integer", "minimum": 0},
        "template": _object({"metadata": {"type": "object"}, "spec": {"type": "object"}}, "spec"),
        "dependsOn": {"type": "array", "maxItems": 5},
    },
    "name", "template",
)  # fmt: skip
JOBSET = _object(
    {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": METADATA,
        "spec": _object(
            {
                "replicatedJobs": {"type": "array", "items": REPLICATED_JOB, "minItems": 1},
                "network": NETWORK,
                "successPolicy": SUCCESS_POLICY,
                "failurePolicy": FAILURE_POLICY,
                "suspend": {"type": "boolean"},
                "managedBy": {"type": "string", "maxLength": 63},
                "ttlSecondsAfterFinished": {"type": "integer", "minimum": 0},
            }
        ),
    },
    "apiVersion", "kind", "metadata", "spec",
)  # fmt: skip
