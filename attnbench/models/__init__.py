"""Published models: from their ``config.json`` to the attention they compute, and to a suite of its cases."""
