"""Predictions of what XLA's passes and back ends do to a program."""
