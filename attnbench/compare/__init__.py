"""Two sides compared: stored runs, live runs, their environments, and the gate."""
