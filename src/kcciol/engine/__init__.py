"""How steps are run and what is kept of a run: eager or as a CUDA graph, ranks, checkpoints, run folder, progress."""
