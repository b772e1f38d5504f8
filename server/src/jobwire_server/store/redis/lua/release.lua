--- @include lib/lease
-- Release: PENDING again, at its old place or after a delay; costs no attempt.
local function release(job, item)
  local attempts = lease.record_end(job, "R")
  if item.delay > 0 then
    transition.wait(job, "B", now + item.delay, "attempts", attempts)
  else
    transition.ready(job, "back", "attempts", attempts)
  end
end
