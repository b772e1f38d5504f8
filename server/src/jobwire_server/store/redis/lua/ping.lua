--- @include lib/keys
-- Whether the engine takes writes: fails where a write would.
redis.call("SET", PREFIX .. "alive", 1, "PX", CLAIM_REPEATABLE)
return 1
