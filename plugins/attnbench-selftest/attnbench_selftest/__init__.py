"""attnbench's self-test: how often its verdicts are right, and whether it refuses wrong backends."""
