"""The processes that run a backend's code, started by the runner.

    parent ── preloaded server (torch, nothing else) ── prepared worker (a backend on a case) ── worker (set)
       └───── verifier (inputs, oracle, check; NumPy only)

Only prepared workers and workers run code of backends.
"""
