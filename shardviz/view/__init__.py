"""Documents and pictures of all subjects, built once for all media."""
