--- @include lib/record
-- The ready structure: per (queue, priority, tenant) a line ordered by seq; per (queue, priority) a ring of the tenants
-- that have a line, ordered by virtual time. Start-time fair queueing (Goyal, Vin, Cheng 1996), one unit per job: a
-- claimed job moves its tenant one unit ahead. A tenant enters at the ring's minimum, or at the time where it left,
-- if that is later (its debt), so that neither idling nor coming one job at a time gains anything.
local line = {}

local function minimum(ring)
  local first = redis.call("ZRANGE", ring, 0, 0, "WITHSCORES")
  return first[2] and tonumber(first[2])
end

-- Puts a job into its line. `refund`: it comes back, and its tenant gets back the unit that its claim cost.
function line.enter(job, refund)
  redis.call("ZADD", keys.line(job.ns, job.queue, job.priority, job.tenant), job.seq, job.id)
  effects.became_ready(job.ns, job.queue)
  local ring = keys.ring(job.ns, job.queue, job.priority)
  if redis.call("ZSCORE", ring, job.tenant) then
    if refund then
      redis.call("ZINCRBY", ring, -1, job.tenant)
    end
    return
  end
  local debts = keys.debts(job.ns, job.queue, job.priority)
  local debt = redis.call("ZSCORE", debts, job.tenant)
  local floor = minimum(ring)
  if not floor then
    redis.call("ZADD", ring, 0, job.tenant)
    redis.call("ZADD", keys.priorities(job.ns, job.queue), job.priority, job.priority)
    return
  end
  if debt then
    redis.call("ZREM", debts, job.tenant)
    floor = math.max(floor, tonumber(debt) - (refund and 1 or 0))
  end
  redis.call("ZADD", ring, floor, job.tenant)
end

-- Ends a level whose ring is empty. Answers whether it was.
function line.close_level(ns, queue, priority)
  if redis.call("EXISTS", keys.ring(ns, queue, priority)) == 1 then
    return false
  end
  redis.call("DEL", keys.debts(ns, queue, priority))
  redis.call("ZREM", keys.priorities(ns, queue), priority)
  return true
end

-- Forgets the debts that the ring has caught up with.
function line.forget_debts(ns, queue, priority)
  local floor = minimum(keys.ring(ns, queue, priority))
  redis.call("ZREMRANGEBYSCORE", keys.debts(ns, queue, priority), "-inf", floor or "+inf")
end

-- Takes a job that was not claimed out of its line.
function line.leave(job)
  local key = keys.line(job.ns, job.queue, job.priority, job.tenant)
  redis.call("ZREM", key, job.id)
  if redis.call("EXISTS", key) == 0 then
    redis.call("ZREM", keys.ring(job.ns, job.queue, job.priority), job.tenant)
    line.close_level(job.ns, job.queue, job.priority)
  end
end
