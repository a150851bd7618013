from jax.sharding import PartitionSpec as PartitionSpec

from . import maps as maps
from . import pjit as pjit
