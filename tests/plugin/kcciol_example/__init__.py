"""A learner, a data set and an encoder of another package, a file each."""
