"""Known mistakes as code: attention in parts, and mutants that exchange one part for a wrong one.

The conformance kit holds a wrong answer against their answers, to say which mistake it looks like.
"""
