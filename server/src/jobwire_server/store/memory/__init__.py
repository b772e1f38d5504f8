"""The memory backend: every rule of the store in plain Python, the statement that an engine's scripts are held to.

Start at `step.py` (what a transition does to record and indexes) and `ready.py` (who is next in line). `store.py` says
which function each verb is.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]
