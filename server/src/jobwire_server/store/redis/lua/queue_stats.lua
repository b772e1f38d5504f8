--- @include lib/record
-- Queue statistics: {ready, scheduled, running, oldest ready time (0: none ready)}. The oldest is looked for among the
-- heads of the lines of at most `tenants` tenants per priority.

local function count(place)
  return tonumber(redis.call("HGET", keys.counts, ns .. US .. queue .. US .. place) or 0) or 0
end

local oldest = 0
for _, priority in ipairs(redis.call("ZREVRANGE", keys.priorities(ns, queue), 0, -1)) do
  for _, tenant in ipairs(redis.call("ZRANGE", keys.ring(ns, queue, priority), 0, tenants - 1)) do
    local head = redis.call("ZRANGE", keys.line(ns, queue, priority, tenant), 0, 0)[1]
    local job = head and record.find(ns, head)
    local since = job and job.deadline - job.queue_timeout or 0
    if since > 0 and (oldest == 0 or since < oldest) then
      oldest = since
    end
  end
end
return { count("ready"), count("scheduled"), count("running"), oldest }
