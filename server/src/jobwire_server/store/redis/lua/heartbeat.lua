--- @include lib/lease
-- Heartbeat: per lease the new lease deadline, or 0 if it is lost.

local deadlines = {}
for i, item in ipairs(items) do
  local job = record.find(item.ns, item.id)
  if job and lease.holds(job, item.token) then
    job.heartbeat, job.deadline = now, now + job.lease_ms
    redis.call("ZADD", keys.lease, job.deadline, keys.ref(job.ns, job.id))
    if item.has_progress == 1 then
      job.version, job.updated = job.version + 1, now
      record.save(job, "progress", item.progress)
    else
      redis.call("HSET", keys.job(job.ns, job.id), "state", pack_state(job))
      redis.call("PEXPIREAT", keys.job(job.ns, job.id), job.deadline + BACKSTOP_LIVE)
    end
    deadlines[i] = job.deadline
  else
    deadlines[i] = 0
  end
end
effects.flush()
return deadlines
