"""Reports on programs: where the time of a step goes.

`profiling` runs steps under JAX's profiler. `xplane` reads what the profiler wrote, and is the only
file that knows its format. `attribution` gives each moment to the instructions that run, and
`node_names` gives the time of an instruction to nodes. `profile` is the result, `profile_text`,
`profile_html` and `chrome_trace` write it. `session_methods` makes it a method of sessions.
"""
