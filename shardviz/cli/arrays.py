"""The verbs about one array: `show`, `reshard`."""
