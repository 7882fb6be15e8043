"""The processes that attnbench starts: what they say to each other and what each does.

    parent ── server (torch loaded, nothing else) ── template (one backend on one case) ── child (one set)
       └───── verifier (inputs, oracle, check; NumPy only)

Backend code runs in templates and children alone.
"""
