"""The parent: plan, processes, run file, resume."""
