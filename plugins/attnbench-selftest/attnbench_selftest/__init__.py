"""attnbench's self-test: how often its verdicts are right, and whether it refuses wrong backends."""

RENEWAL = "renewal"
"""The word that switches off the renewal of inputs while calls are timed, beside the checks of a run."""
