"""The plan that a user edits, bound to a trace; the lowerings that plans ask for; the code that rebuilds a plan."""
