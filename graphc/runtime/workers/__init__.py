"""`Session.run_workers`: asynchronous data parallelism."""
