"""What is served: the versions of each model, their weights, and when each takes requests."""
