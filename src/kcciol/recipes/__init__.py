"""Encoders trained the plain way, beside the paper's: one classifier over all base classes, images that are never the
same twice, weights that are averaged. `kcciol train characters` and `kcciol train small-images` are these.
"""
