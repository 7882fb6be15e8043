"""Loading plugins, guarded: what each brings, where it came from, what failed and why."""
