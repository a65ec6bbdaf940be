"""`ngc_replicator`: the command line of NVIDIA's NGC Container Replicator, kept working."""
