"""The rules about jobs: one interface, `Store`, and its backends."""
