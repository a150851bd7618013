"""What a report's bytes and FLOPs cost on a machine: chips, topologies, collectives, a step, memory."""
