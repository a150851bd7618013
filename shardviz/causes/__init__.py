"""What `why` rests on: perturbed specs, links between dimensions, what needs a sharding."""
