"""The HTML page of ``attnbench report --html``."""
