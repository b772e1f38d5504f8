--- @include lib/transition
-- Leases: who may settle, what a settled token remembers, what happens when a lease runs out.
local lease = {}

function lease.holds(job, token)
  return job.status == "R" and job.queue ~= "" and job.token == token
end

-- The letter under which a token was settled, nil if it is not among those remembered.
function lease.settled(job, token)
  local attempts = redis.call("HGET", keys.job(job.ns, job.id), "attempts")
  for attempt in string.gmatch(attempts or "", "[^\n]+") do
    local known, outcome = string.match(attempt, "^%d+\31([^\31]*)\31(.)")
    if known == token then
      return outcome
    end
  end
  return nil
end

-- The attempts text with the current lease's end added, the oldest dropped above ATTEMPTS_KEPT.
function lease.record_end(job, outcome)
  local attempts = {}
  for attempt in string.gmatch(redis.call("HGET", keys.job(job.ns, job.id), "attempts") or "", "[^\n]+") do
    attempts[#attempts + 1] = attempt
  end
  if #attempts == ATTEMPTS_KEPT then
    table.remove(attempts, 1)
  end
  attempts[#attempts + 1] = table.concat({ job.attempt, job.token, outcome, job.started, now, job.worker }, US)
  return table.concat(attempts, "\n")
end

-- Guards a settlement: nil if the token holds the lease, else the answer.
function lease.fence(job, item)
  if not job then
    return { CODE_NOT_FOUND }
  elseif lease.holds(job, item.token) then
    return nil
  elseif lease.settled(job, item.token) == item.verb then
    return { CODE_REPEATED, job.status }
  end
  return { CODE_LEASE_LOST }
end

-- The replica that keeps the stream's credit hears of a settlement elsewhere.
function lease.tell_owner(job, replica)
  if job.owner ~= "" and job.owner ~= replica then
    effects.notify(job.owner, "settled", PARTITION, job.ns, job.token)
  end
end

-- The worker's word proves that the job had reached it. (A Release does not: the server sends one for what it could not
-- deliver.)
function lease.received(job)
  job.receipt, job.undelivered = 0, 0
end

-- Extends the lease from now, not beyond its revocation. A heartbeat is the receipt.
function lease.extend(job)
  job.heartbeat, job.deadline = now, now + job.lease_ms
  lease.received(job)
  if job.cancel_at > 0 then
    job.deadline = math.min(job.deadline, job.cancel_at)
  end
end

-- A lease ran out, or (`taken`) an operator took it. One that somebody asked to stop never runs again. One whose receipt
-- never came did not reach its worker: that is no loss, until it happens UNDELIVERED_MAX times in a row.
function lease.lose(job, lost_error, taken)
  if job.cancel_at > 0 then
    local revoked = now >= job.cancel_at
    if not revoked then
      job.losses = job.losses + 1
    end
    transition.finish(job, "C", "attempts", lease.record_end(job, revoked and "X" or "L"))
    return
  end
  if job.receipt > 0 and not taken then
    job.undelivered = job.undelivered + 1
    if job.undelivered < UNDELIVERED_MAX then
      transition.ready(job, "back", "attempts", lease.record_end(job, "U"))
      return
    end
  end
  job.losses, job.undelivered = job.losses + 1, 0
  local attempts = lease.record_end(job, "L")
  if job.failures + job.losses >= job.max_attempts then
    transition.finish(job, "F", "attempts", attempts, "error", lost_error)
  else
    transition.ready(job, "back", "attempts", attempts, "error", lost_error)
  end
end
