"""Torch pieces for writing a backend: masks, scores, softmax, heads, the layer around the heads.

Public: a plugin may use them, and the built-in backends do. Nothing here imports torch until it's
called, so that listing backends stays light. What depends on the case alone is made by the functions
of :mod:`attnbench.kit.masks`, once, in ``prepare``.
"""
