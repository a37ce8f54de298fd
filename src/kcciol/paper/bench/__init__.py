"""`kcciol bench`: how fast this machine runs the meta-step and the evaluation, beside the plain way."""
