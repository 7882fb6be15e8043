"""Finding and loading plugins; a plugin that fails becomes a fault in words and harms no other."""
