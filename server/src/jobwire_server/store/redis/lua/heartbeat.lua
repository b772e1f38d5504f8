--- @include lib/lease
--- @include lib/memory
-- Heartbeat: per lease {new lease deadline, cancel text or false}, or {0} if it is lost.

memory.spared()
local answers = {}
for i, item in ipairs(items) do
  local job = record.find(item.ns, item.id)
  if job and lease.holds(job, item.token) then
    -- The same once more is no change: a repeat whose first try took effect makes no second version.
    local news = item.has_progress == 1
      and redis.call("HGET", keys.job(job.ns, job.id), "progress") ~= item.progress
    lease.extend(job)
    redis.call("ZADD", keys.lease, job.deadline, keys.ref(job.ns, job.id))
    if news then
      job.version, job.updated = job.version + 1, now
      record.save(job, "progress", item.progress)
    else
      record.write(job)
    end
    answers[i] = { job.deadline, job.cancel_at > 0 and redis.call("HGET", keys.job(job.ns, job.id), "cancel") }
  else
    answers[i] = { 0 }
  end
end
effects.flush()
return answers
