--- @include lib/lease
--- @include lib/memory
-- One slice of what time does to a partition, at most `slice` entries per timer: due jobs become ready, unclaimed ones
-- end as FAILED, leases that ran out are reclaimed, records past their retention go. Idempotent.
--
-- Answers {now, next deadline (0: none), more, late, promoted, expired, removed, ns, id, ns, id, ...}: `late` is how late
-- the latest of the promoted was, the names are those whose leases were reclaimed.

local promoted, expired, removed, more, late = 0, 0, 0, 0, 0
local answer = {}
local LOST = { walk = 0 }

-- Calls `act` with each job whose time in the timer has come. An entry without its job is dropped.
local function each_due(timer, act)
  local refs = redis.call("ZRANGEBYSCORE", timer, "-inf", now, "WITHSCORES", "LIMIT", 0, slice)
  if #refs == 2 * slice then
    more = 1
  end
  for i = 1, #refs, 2 do
    local ns, id = keys.split_ref(refs[i])
    local present, past = record.find(ns, id)
    local job = present or past
    if job and job.deadline == tonumber(refs[i + 1]) and transition.timer(job) == timer then
      act(job)
    else
      redis.call("ZREM", timer, refs[i])
      if not job then
        redis.call("ZREM", keys.ids(ns), id)
        local parent = string.match(id, "^(.*)/")
        if parent then
          redis.call("ZREM", keys.children(ns, parent), id)
        end
      end
      if not job and timer == keys.gone then
        effects.count(LOST, "ended", -1) -- nothing is amiss: the engine's own expiry, the backstop, was first
      end
    end
  end
end

memory.spared()
each_due(keys.due, function(job)
  if job.reason == "R" then
    expired = expired + 1
    transition.finish(job, "F", "error", expired_error)
  else
    promoted = promoted + 1
    late = math.max(late, now - job.deadline)
    transition.ready(job, "new")
  end
end)

each_due(keys.lease, function(job)
  answer[#answer + 1] = job.ns
  answer[#answer + 1] = job.id
  lease.lose(job, lost_error, false)
end)

each_due(keys.gone, function(job)
  removed = removed + 1
  transition.remove(job)
end)

local next_deadline = 0
for _, timer in ipairs({ keys.due, keys.lease }) do
  local first = redis.call("ZRANGE", timer, 0, 0, "WITHSCORES")
  local deadline = first[2] and tonumber(first[2]) or 0
  if deadline > 0 and (next_deadline == 0 or deadline < next_deadline) then
    next_deadline = deadline
  end
end
effects.flush()
return { now, next_deadline, more, late, promoted, expired, removed, unpack(answer) }
