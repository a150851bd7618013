"""Lowering to StableHLO, Shardy, and what it found: values, collectives, logical dimensions."""
