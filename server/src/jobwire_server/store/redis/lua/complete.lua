--- @include lib/lease
-- Complete: SUCCEEDED, with the result, no error.
local function complete(job, item)
  lease.received(job)
  local attempts = lease.record_end(job, "C")
  redis.call("HDEL", keys.job(job.ns, job.id), "error")
  transition.finish(job, "S", "attempts", attempts, "result", item.content)
end
