"""jobwire: the client."""
