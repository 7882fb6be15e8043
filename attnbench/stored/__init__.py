"""Files of results, ours and others', read alike; what two sides of them say, and the gate on that."""
