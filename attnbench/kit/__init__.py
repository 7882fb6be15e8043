"""Torch pieces for writing a backend: masks, scores, softmax, heads, the layer around the heads.

The kit is public: plugins may use it, and the built-in backends do. Its functions import torch when they are
called, so that listing backends stays light. Call the functions of :mod:`attnbench.kit.masks` in ``prepare``:
masks depend on the case alone.
"""
