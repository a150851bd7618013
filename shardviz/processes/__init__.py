"""The compile server: compiling outside the kernel, in children that can be stopped, crash, or run out of memory.

`submit(request)` gives a `Job`, a future that reports milestones (the partitioned program, then the optimised one
with its memory plan) while the compiler is still at work, and that ends as soon as nothing more is wanted: machine code
is never waited for.
"""

from shardviz.processes.client import begin, shutdown, start, submit, tried
from shardviz.processes.dumps import LEVELS
from shardviz.processes.future import Job
from shardviz.processes.job import Request, Topology, Trial
