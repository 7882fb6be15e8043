"""Programs: the attention calls that one makes, counted while it runs, and the suite of their cases."""
