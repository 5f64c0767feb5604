"""Runs compiled programs: on one device, on replicas, on a mesh, or in parts."""
