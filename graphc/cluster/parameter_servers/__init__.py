"""Parameter servers on Ray: variables in several server processes, gradients in worker processes.

Only `actors` imports Ray. The other modules are plain Python, so that they can be tested in one
process: `splitting` divides the server's half of a step, `halves` compiles and runs a half,
`journal` makes updates durable, `shard` and `worker` are what the processes do, `pool` is the
session's side.
"""
