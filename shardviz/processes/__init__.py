"""The compile server: compiling outside the kernel, in processes that may be stopped, crash, or run out of memory.

`submit(request)` returns a `Job`, a future that reports milestones (the partitioned program, then the optimised program
with its memory plan) while the compiler is running. It ends after the last requested milestone, without waiting for
machine code.
"""

from shardviz.processes.client import begin, shutdown, start, submit, tried
from shardviz.processes.dumps import LEVELS
from shardviz.processes.future import Job
from shardviz.processes.job import Request, Topology, Trial
