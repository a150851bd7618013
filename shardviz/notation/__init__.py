"""How a sharding is written: every notation, read and written, with no JAX in it.

The way in is `shardviz.sharding`; `rosetta` puts one sharding into all notations; `pmap` has pmap's old vocabulary.
"""

from shardviz.notation import pmap
from shardviz.notation.letters import Letter
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.read import NotationRow, rosetta, sharding
from shardviz.notation.record import NOTATIONS, Sharding
from shardviz.notation.spec import Axis, Spec, axis_name, check_spec
