"""What other times wrote: pjit of 2021, files of jax.export, and why an old call compiles again."""
