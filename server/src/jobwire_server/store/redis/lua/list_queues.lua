--- @include lib/effects
-- The fields of the statistics: one per (namespace, queue, place) that holds a job.
return redis.call("HKEYS", keys.counts)
