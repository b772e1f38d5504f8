--- @include lib/mend
--- @include lib/memory
-- The end of the repair walk, in slices: every record was counted, and that count becomes the statistics. The first pass
-- looks at the counters that there are, the second (`second` 1) at those that the walk found. Whatever moves a job by now
-- moves it in both. Answers {new cursor, {sort, number, ...}}, nothing if the walk had been given up.

local PLACES = { ready = true, scheduled = true, running = true, due = true, lease = true, gone = true }

memory.spared()
if not mend.goes_on() then
  return {}
end

local scanned = redis.call("HSCAN", second == 1 and keys.recount or keys.counts, cursor, "COUNT", slice)
for i = 1, #scanned[2], 2 do
  local field = scanned[2][i]
  local counted, found = redis.call("HGET", keys.counts, field), redis.call("HGET", keys.recount, field)
  if PLACES[string.match(field, "[^\31]*$")] and counted ~= found then
    if found then
      redis.call("HSET", keys.counts, field, found)
    else
      redis.call("HDEL", keys.counts, field)
    end
    mend.note("count", 1)
  end
end
if second == 1 and scanned[1] == "0" then
  redis.call("DEL", keys.walk, keys.recount)
  redis.call("SET", keys.walked, 1, "PX", WALK_EVERY)
end
return { scanned[1], mend.report() }
