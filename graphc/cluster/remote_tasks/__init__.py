"""In-graph replication on Ray: one program, whose nodes are on the tasks of a cluster.

Only `actors` imports Ray. The other modules are plain Python, so that they can be tested in one
process: `planning` divides a program into the calls of tasks, `station` is what the process of a
task does, `runner` is the session's side, `strategy` is the record of the user.
"""
