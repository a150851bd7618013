"""What to compile, in one straight line: adapt, trace, bind a plan, lower, propagate."""
