"""shardviz: an interactive explorer of sharding in JAX.

>>> import shardviz as sv
>>> sv.mesh(data=2, model=4).shape_tuple
(('data', 2), ('model', 4))

The public names stand in `__init__.pyi`. Each is loaded when first used, so that `import shardviz` costs next to
nothing, starts no JAX backend and no process.
"""

try:
    import lazy_loader

    from shardviz import display, libtpu
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"shardviz needs the package {error.name}, which is not installed here; `pip install shardviz`, or in a "
        "checkout `pip install -e .`, installs it with all others that shardviz needs",
        name=error.name,
    ) from error

__version__ = "0.2.0"

libtpu.keep_quiet()

display.painted_in("shardviz.paint", "shardviz.lessons.form")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
