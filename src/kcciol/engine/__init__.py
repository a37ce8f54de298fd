"""How steps are run and what is kept of a run: eager or as a CUDA graph, checkpoints, the run folder, progress."""
