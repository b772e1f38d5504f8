--- @include lib/mend
--- @include lib/memory
-- The end of the repair walk: every record was counted, and that count becomes the statistics. Answers
-- {sort, number, ...}; nothing if the walk had been given up.

memory.spared()
if effects.walk() ~= number then
  return {}
end

local counts, recount = {}, {}
local function read(key, into)
  local fields = redis.call("HGETALL", key)
  for i = 1, #fields, 2 do
    into[fields[i]] = fields[i + 1]
  end
end
read(keys.counts, counts)
read(keys.recount, recount)

for field, value in pairs(counts) do
  if recount[field] ~= value then
    redis.call("HDEL", keys.counts, field)
    mend.note("count", 1)
  end
end
for field, value in pairs(recount) do
  if counts[field] ~= value then
    redis.call("HSET", keys.counts, field, value)
    mend.note("count", counts[field] and 0 or 1)
  end
end
redis.call("DEL", keys.walk, keys.recount)
return mend.report()
