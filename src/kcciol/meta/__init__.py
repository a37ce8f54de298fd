"""Algorithms 1 to 3 of the paper.

phases.py: Algorithm 1. Algorithm 2: trajectory.py draws (line 2), reset.py prepares W, inner.py learns a trajectory and
takes the loss (lines 5 to 9; lowrank.py the same, faster), outer.py takes the gradient (lines 4 to 10), optim.py of
the package updates (lines 11 and 12), step.py is all of it. mask.py: Algorithm 3.
"""
