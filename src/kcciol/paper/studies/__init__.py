"""The paper's experiments: a file for each data set or problem."""
