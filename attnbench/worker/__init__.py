"""The processes that run a backend's code, started by the runner.

    parent ── preloaded server (torch, no plugin) ── worker (a plugin, a prepared backend) ── its forks
       └───── verifier (inputs, oracle, check; NumPy only)

Only workers and their forks run code of backends.
"""
