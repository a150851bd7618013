"""How a sharding is written: the mesh and the PartitionSpec as plain data, with no JAX in them."""

from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_name, check_spec

__all__ = ["Axis", "DeviceMesh", "Spec", "axis_name", "check_spec"]
