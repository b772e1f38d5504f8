--- @include lib/effects
-- Replicas that wait for a queue's next job.
local waiters = {}

-- Whether a job of the queue is ready.
function waiters.has_ready(ns, queue)
  return redis.call("EXISTS", keys.priorities(ns, queue)) == 1
end

-- This replica waits for the queue, for WAITER_EXPIRY from now.
function waiters.register(ns, queue, replica)
  local key = keys.waiters(ns, queue)
  redis.call("ZADD", key, now + WAITER_EXPIRY, replica)
  redis.call("PEXPIREAT", key, now + 2 * WAITER_EXPIRY)
end
