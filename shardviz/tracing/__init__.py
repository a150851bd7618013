"""Any callable as a `Call`, and its traces: adapters, trees, names, specs by rules and by prefixes."""
