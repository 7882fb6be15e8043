"""The self-test: how often attnbench's verdicts are right, measured; other tools' beside them."""
