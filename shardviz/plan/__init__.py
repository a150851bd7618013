"""The plan that a user edits, its binding to a trace, the lowerings that plans need, and the code that rebuilds a
plan."""
