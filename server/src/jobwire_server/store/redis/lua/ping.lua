--- @include lib/keys
-- Whether the engine takes writes: fails where a write would.
redis.call("SET", keys.alive, 1, "EX", 10)
return 1
