"""One state machine over both backends: the engine's scripts against the rules in plain Python."""
