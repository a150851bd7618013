"""The cost of a report's bytes and FLOPs on a machine: chips, topologies, collectives, a step, memory."""
