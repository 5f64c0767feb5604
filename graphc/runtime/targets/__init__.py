"""What runs a compiled program: one device, replicas, a mesh, programs in parts."""
