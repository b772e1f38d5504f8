"""The backend on Redis and Valkey: one Lua script per verb."""
