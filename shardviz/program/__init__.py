"""What to compile: a traced function, a plan for it, Shardy's propagation in the kernel, and the compile server."""
