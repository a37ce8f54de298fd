"""Where groups of cells are computed: in this process, in processes of this machine, or on a Ray cluster."""
