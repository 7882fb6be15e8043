"""One run on the devices of many machines: its units, where they run, and what comes home."""
