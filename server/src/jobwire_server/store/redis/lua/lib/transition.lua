--- @include lib/line
-- The one way from a place to another: line, timer, statistics, parent and record change together.
local transition = {}

local TIMERS = { ready = keys.due, scheduled = keys.due, running = keys.lease, ended = keys.gone, state = keys.gone }

-- "ready", "scheduled", "running", "ended", or "state" for a state-only job.
function transition.place(job)
  if job.queue == "" then
    return "state"
  elseif job.status == "R" then
    return "running"
  elseif job.status == "P" then
    return job.reason == "R" and "ready" or "scheduled"
  end
  return "ended"
end

-- The key of the timer in which the job stands.
function transition.timer(job)
  return TIMERS[transition.place(job)]
end

-- A job that has just been made (by Create) goes to its place.
function transition.begin(job, ...)
  local place = transition.place(job)
  if place == "ready" then
    job.seq = redis.call("INCR", keys.seq)
    line.enter(job, false)
  end
  redis.call("ZADD", TIMERS[place], job.deadline, keys.ref(job.ns, job.id))
  effects.count(job, place, 1)
  return record.save(job, ...)
end

-- Moves a job with a queue to another place, in all but its record: `status`, `reason` and `deadline` say where to.
-- `how` is "back" for a job that returns to its old place in line, "new" otherwise.
function transition.shift(job, status, reason, deadline, how)
  local from = transition.place(job)
  if from == "ready" then
    line.leave(job)
  end
  job.status, job.reason, job.deadline = status, reason, deadline
  if from == "running" then
    job.token, job.lease_ms, job.receipt, job.owner, job.worker = "", 0, 0, "", ""
  end
  local to = transition.place(job)
  if to == "ready" then
    if how == "new" then
      job.seq = redis.call("INCR", keys.seq)
    end
    line.enter(job, how == "back")
  end
  local ref = keys.ref(job.ns, job.id)
  if TIMERS[from] ~= TIMERS[to] then
    redis.call("ZREM", TIMERS[from], ref)
  end
  redis.call("ZADD", TIMERS[to], job.deadline, ref)
  if from ~= to then
    effects.count(job, from, -1)
    effects.count(job, to, 1)
  end
end

-- The same with the record; the rest are further fields to write.
function transition.move(job, status, reason, deadline, how, ...)
  transition.shift(job, status, reason, deadline, how)
  record.bump(job)
  if record.ended(job) then
    record.count_child(job, record.KIDS[job.status], 1)
    record.keep_dedup(job)
  end
  record.save(job, ...)
end

-- From the line, which it has left already, to a worker. (Many jobs leave a line at once: see `claim.lua`.) Returns the
-- state as written.
function transition.lease(job)
  record.bump(job)
  local state = record.save(job)
  local ref = keys.ref(job.ns, job.id)
  redis.call("ZREM", keys.due, ref)
  redis.call("ZADD", keys.lease, job.deadline, ref)
  effects.count(job, "ready", -1)
  effects.count(job, "running", 1)
  effects.taken(job.ns, job.queue)
  return state
end

-- To the line as a newcomer, to its old place in line, or to wait until `run_at`.
function transition.ready(job, how, ...)
  transition.move(job, "P", "R", now + job.queue_timeout, how, ...)
end

function transition.wait(job, reason, run_at, ...)
  transition.move(job, "P", reason, run_at, "new", ...)
end

-- To a terminal status.
function transition.finish(job, status, ...)
  job.finished = now
  transition.move(job, status, "-", record.expire_time(job, now), "new", ...)
end

-- Removes a record with everything that points to it. `job` may be past its expire time.
function transition.remove(job)
  local place = transition.place(job)
  if place == "ready" then
    line.leave(job)
  end
  effects.count(job, place, -1)
  redis.call("ZREM", TIMERS[place], keys.ref(job.ns, job.id))
  redis.call("ZREM", keys.ids(job.ns), job.id)
  if job.parent ~= "" then
    redis.call("ZREM", keys.children(job.ns, job.parent), job.id)
  end
  if job.dedup ~= "" then
    if redis.call("GET", keys.dedup(job.dedup)) == job.id then
      redis.call("DEL", keys.dedup(job.dedup))
    end
  end
  record.changed(job)
  redis.call("DEL", keys.job(job.ns, job.id))
end
