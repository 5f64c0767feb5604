"""Training as a service: a queue of jobs on this machine, its web page, and jobs for Kubernetes.

`spec` is what a job is, `scheduling` decides which jobs start (a pure function), `store` keeps them
(SQLite), `processes` starts and finds their processes, `service` joins these. `endpoint` and
`server` are the REST interface and the page. A job runs through `graphc launch`.
"""
