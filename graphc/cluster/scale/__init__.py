"""Predictions of how a program scales over the devices of a cluster.

`hardware` describes devices and the links between them, `collectives` times the exchanges,
`workload` counts a compiled program, `schedule` times a step of one split, `splits` lists the
splits, and `scaling` searches them.
"""
