--- @include lib/effects
-- The fields of the statistics: one per (namespace, queue, place) that holds a job, one for all others.
return redis.call("HKEYS", keys.counts)
