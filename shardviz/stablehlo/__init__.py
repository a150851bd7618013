"""A StableHLO module, read and rewritten through MLIR."""
