--- @include lib/lease
-- Fail: PENDING again while attempts remain and the error allows it, else FAILED; CANCELLED if somebody asked to stop it.
local function fail(job, item)
  lease.received(job)
  job.failures = job.failures + 1
  local attempts = lease.record_end(job, "F")
  if job.cancel_at > 0 then
    transition.finish(job, "C", "attempts", attempts, "error", item.content)
  elseif item.final == 1 or job.failures + job.losses >= job.max_attempts then
    transition.finish(job, "F", "attempts", attempts, "error", item.content)
  elseif item.delay > 0 then
    transition.wait(job, "B", now + item.delay, "attempts", attempts, "error", item.content)
  else
    transition.ready(job, "back", "attempts", attempts, "error", item.content)
  end
end
