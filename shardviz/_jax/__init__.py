"""All uses of JAX's private API. They are tested with the oldest and the newest JAX that we support.

JAX has no public API for these tasks: changing the shardings inside a traced program, using an own MLIR context,
compiling a module for simulated devices or for an absent machine, writing XLA's dumps, and reading the contents of an
exported file or an executable.
"""

from shardviz._jax.checkpoints import Checkpointing, under_checkpoint
from shardviz._jax.collectives import better_collectives
from shardviz._jax.compiling import compile_for_cpu, compile_only, let_fork_end, preload, renew_threads
from shardviz._jax.contexts import (
    PLACES,
    SET_MESH,
    StandInDevice,
    context_mesh,
    device_ids,
    filled_places,
    hlo_sharding_of,
    op_sharding,
    partition_spec,
    settings,
    under,
    under_settings,
)
from shardviz._jax.dispatch import (
    Ahead,
    Dispatched,
    array_of,
    array_types,
    compiled_shardings,
    default_device,
    delete,
    has_backend,
    intercepted,
    is_unspecified,
    is_zero_array,
    lowered_text,
    missing_seam,
    numbers_of,
    read,
    zero_array,
    zero_arrays,
)
from shardviz._jax.exports import (
    constraints_of,
    evaluated,
    export_shardings,
    exported_module,
    is_export_file,
    read_export,
    refined,
    symbols_of,
)
from shardviz._jax.jaxprs import (
    MOST_EQUATIONS,
    callbacks,
    checkpoint_names,
    constants,
    constraints,
    dtype_name,
    equations,
    has_kernel,
    key_bits,
    leaked,
    memory_kinds,
    meshes,
    names_of,
    offloaded,
    on_mesh,
    outermost_shard_map,
    scanned,
    settled_results,
    sub_jaxprs,
    user_frames,
    written,
    written_out,
)
from shardviz._jax.kernels import kernel_estimates
from shardviz._jax.known import LARGEST, Known
from shardviz._jax.lowering import (
    bytecode,
    ir_type,
    lower,
    mlir_context,
    module_from,
    passed,
    run_passes,
    self_partitioned,
    walk,
)
from shardviz._jax.marking import Line, Made, Watch, mark, marked_text, marks_in, passing
from shardviz._jax.posing import posing
from shardviz._jax.processes import patch_multihost, process, start_process
from shardviz._jax.tracing import cudnn_attention, missing_axis, refuses_types, tracing_on
from shardviz._jax.wrappers import PmapWrapping, plain_function, reduced, shard_map_mesh, unwrap_jit, unwrap_pmap
