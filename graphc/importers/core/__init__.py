"""What all importers share: the imported model, its weights, its graph, and refusals."""
