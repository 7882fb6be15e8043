"""The words of attnbench as frozen values: cases, rules, backends, suites, records.

Nothing here imports torch; the words of masks import numpy when they make arrays, and nothing else computes.
"""
