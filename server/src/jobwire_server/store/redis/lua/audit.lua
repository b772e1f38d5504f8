--- @include lib/effects
-- Audit: whether counters agree with the sizes of indexes: all of a timer, and a slice of the queues, with `cursor` as
-- HSCAN has it. Of a slice's lines it adds up `lines_max`; queues beyond that are taken for good.
--
-- Answers {1 if they agree, 1 if no repair walk was here lately, new cursor}.

local looked = 0
local function in_lines(ns, queue)
  local found = 0
  for _, priority in ipairs(redis.call("ZRANGE", keys.priorities(ns, queue), 0, -1)) do
    for _, tenant in ipairs(redis.call("ZRANGE", keys.ring(ns, queue, priority), 0, math.max(lines_max - looked, 0))) do
      looked = looked + 1
      found = found + redis.call("ZCARD", keys.line(ns, queue, priority, tenant))
    end
  end
  return found
end

local agree = 1
for _, timer in ipairs({ "due", "lease", "gone" }) do
  if tonumber(redis.call("HGET", keys.counts, US .. US .. timer) or 0) ~= redis.call("ZCARD", keys[timer]) then
    agree = 0
  end
end
local scanned = redis.call("HSCAN", keys.counts, cursor, "COUNT", slice)
for i = 1, #scanned[2], 2 do
  local ns, queue = string.match(scanned[2][i], "^([^\31]*)\31([^\31]+)\31ready$")
  if queue and looked <= lines_max and in_lines(ns, queue) ~= tonumber(scanned[2][i + 1]) and looked <= lines_max then
    agree = 0
  end
end
return { agree, 1 - redis.call("EXISTS", keys.walked), scanned[1] }
