"""Jobs for Kubernetes: `manifests` writes a JobSet and a headless Service, `submitting` creates
them."""
