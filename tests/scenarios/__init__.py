"""Real bug reports from comparable systems, each a test named after it."""
