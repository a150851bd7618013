"""Callables as a `Call`, and their traces: adapters, trees, names, specs by rules and by prefixes."""
