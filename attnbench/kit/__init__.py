"""Torch pieces for writing a backend: masks, scores, softmax, heads, the layer around the heads.

The pieces serve the operations ``attention`` and ``multihead``: :mod:`attnbench.kit.attention`,
:mod:`~attnbench.kit.scores` and :mod:`~attnbench.kit.masks` compute ``attention``, and
:func:`attnbench.kit.layer.for_operation` puts the layer of ``multihead`` around it. With them a backend for
every rule, mask, dropout and gradient is one line::

    def prepare(setup):
        return for_operation(attention(setup), setup)

The kit is public: plugins may use it, and the built-in backends do. Its functions import torch when they are
called, so that listing backends stays light. Call the functions of :mod:`attnbench.kit.masks` in ``prepare``:
masks depend on the case alone.
"""
