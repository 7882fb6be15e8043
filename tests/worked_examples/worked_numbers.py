"""The numbers of the worked examples, as they are printed."""

from __future__ import annotations

import numpy as np

SELF = np.array([[1.0, 3, 2], [1, 1, 3], [1, 2, 1]])
SELF_OUT = np.array([[1, 2.957691, 2.011295], [1, 1.540148, 2.722573], [1, 2.864164, 2.000000]])
SELF_WEIGHTS = np.array([[0.9756, 0.0179, 0.0066], [0.2676, 0.7275, 0.0049], [0.9094, 0.0453, 0.0453]])

TOKENS = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0.5, 0.5, 0]])
TOKENS_SCORES_1 = np.array([1, 0, 0.5, 0.5, 0.75])
TOKENS_WEIGHTS_1 = np.array([0.2976, 0.1095, 0.1805, 0.1805, 0.2318])
TOKENS_WEIGHTS_5 = np.array([0.2374, 0.1440, 0.2374, 0.1440, 0.2374])

PROJECTED = np.array([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
W_K = np.array([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
W_Q = np.array([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
W_V = np.array([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
PROJECTED_SCORES = np.array([[2.0, 4, 4], [4, 16, 12], [4, 12, 10]])
PROJECTED_WEIGHTS_1 = np.array([6.3379e-2, 4.6831e-1, 4.6831e-1])
PROJECTED_OUT = np.array(
    [[1.936621, 6.683105, 1.595068], [1.999994, 7.963992, 0.053976], [1.999705, 7.759892, 0.358389]]
)
ROUNDED_WEIGHTS = np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]])
ROUNDED_OUT = np.array([[2, 7, 1.5], [2, 8, 0], [2, 7.8, 0.3]])
