--- @include lib/record
-- Audit: 1 if the counters agree with the sizes of the indexes, else 0. Looks at `lines_max` lines at most; those of
-- queues beyond that are taken for good.

local sums, ready = { ready = 0, scheduled = 0, running = 0, gone = 0 }, {}
local fields = redis.call("HGETALL", keys.counts)
for i = 1, #fields, 2 do
  local ns, queue, place = string.match(fields[i], "^([^\31]*)\31([^\31]*)\31(.*)$")
  local number = tonumber(fields[i + 1])
  sums[place] = sums[place] + number
  if place == "ready" then
    ready[#ready + 1] = { ns = ns, queue = queue, number = number }
  end
end

local function size(key)
  return redis.call("ZCARD", key)
end

local looked = 0
local function in_lines(ns, queue)
  local found = 0
  for _, priority in ipairs(redis.call("ZRANGE", keys.priorities(ns, queue), 0, -1)) do
    for _, tenant in ipairs(redis.call("ZRANGE", keys.ring(ns, queue, priority), 0, lines_max - looked)) do
      looked = looked + 1
      found = found + size(keys.line(ns, queue, priority, tenant))
    end
  end
  return found
end

if size(keys.due) ~= sums.ready + sums.scheduled or size(keys.lease) ~= sums.running or size(keys.gone) ~= sums.gone then
  return 0
end
for _, item in ipairs(ready) do
  local found = in_lines(item.ns, item.queue)
  if looked > lines_max then
    break
  elseif found ~= item.number then
    return 0
  end
end
return 1
