"""What all importers share: the imported model, its weights, its graph, refusals, and
operations that several formats have."""
