"""The words of attnbench as frozen values: cases, rules, backends, suites, records.

Nothing here computes anything, and nothing here imports numpy or torch.
"""
