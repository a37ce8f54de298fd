"""Algorithms 1 to 3 of the paper.

phases.py: Algorithm 1. outer.py: one pass of Algorithm 2's loop. inner.py: its lines 5 to 9, and lowrank.py the same
faster. mask.py: Algorithm 3. trajectory.py: what Algorithm 2's line 2 draws. adam.py: the update of line 13.
"""
