"""The paper's tables, re-made: what is trained, what is measured on it, and which of its numbers stand beside.

A *study* is all of one data set: *columns*, which are representations, and *parts*, which are tables. A *cell* is one
thing measured on one representation of one seed: a JSON file in the runs folder. The runner makes the cells that are
not there yet; whatever is there becomes tables.
"""
