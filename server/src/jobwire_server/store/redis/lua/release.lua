--- @include lib/lease
-- Release: PENDING again, at its old place or after a delay; costs no attempt. CANCELLED if somebody asked to stop it.
local function release(job, item)
  local attempts = lease.record_end(job, "R")
  if job.cancel_at > 0 then
    transition.finish(job, "C", "attempts", attempts)
  elseif item.delay > 0 then
    transition.wait(job, "B", now + item.delay, "attempts", attempts)
  else
    transition.ready(job, "back", "attempts", attempts)
  end
end
