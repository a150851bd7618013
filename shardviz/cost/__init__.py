"""What a report's bytes and FLOPs cost on a machine."""
