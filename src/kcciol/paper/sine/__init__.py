"""Sine functions learned one after another: the paper's regression experiment, many runs side by side.

One meta-step has 400 steps of SGD in sequence on a small network, so it waits, it does not compute. Therefore
everything here has *members* in front, (M, ...): runs that differ in seed or in settings and take each step together.
"""
