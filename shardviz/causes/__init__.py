"""The basis of `why`: perturbed specs, links between dimensions, reasons for reshards."""
