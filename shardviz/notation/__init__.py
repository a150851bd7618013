"""Every notation of a sharding, read and written, without JAX.

The entry point is `shardviz.sharding`; `rosetta` writes one sharding in all notations; `pmap` has pmap's vocabulary.
"""

from shardviz.notation import pmap
from shardviz.notation.letters import Letter
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.read import NotationRow, rosetta, sharding
from shardviz.notation.record import NOTATIONS, Sharding
from shardviz.notation.spec import Axis, Spec, axis_name, check_spec
