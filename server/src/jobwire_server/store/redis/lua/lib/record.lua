--- @include lib/effects
-- Reading and writing the record's hash. A job here is a table: ns, id, and the fields of `route` and `state`.
local record = {}

-- Whether a job's retention runs: it has ended, or it is state only.
function record.ended(job)
  return job.status == "S" or job.status == "F" or job.status == "C"
end

function record.expires(job)
  return job.queue == "" or record.ended(job)
end

-- The job, or nil if it is absent, or its texts are not what we write. A job past its expire time is absent too; it is
-- the second value then.
function record.find(ns, id)
  local texts = redis.call("HMGET", keys.job(ns, id), "route", "state", "watchers")
  local job = { ns = ns, id = id, watchers = texts[3] }
  if not (unpack_route(job, texts[1]) and unpack_state(job, texts[2])) then
    return nil, nil
  end
  if record.expires(job) and now >= job.deadline then
    return nil, job
  end
  return job, nil
end

-- The record's fields as the caller decodes them.
function record.read(ns, id, full)
  return redis.call("HMGET", keys.job(ns, id), unpack(full and FULL_FIELDS or BASIC_FIELDS))
end

function record.etag(job)
  return job.nonce .. "." .. job.revision
end

-- A visible change that the etag shows.
function record.bump(job)
  job.version = job.version + 1
  job.revision = job.revision + 1
  job.updated = now
end

-- Never in the past, where an owner's shorter ttl may put the expire time: this very script still answers the record.
local function backstop(job)
  return math.max(job.deadline, now) + (record.expires(job) and BACKSTOP_ENDED or BACKSTOP_LIVE)
end

-- Writes the state and the given further fields (name, value, ...), and sets the engine's own expiry. Returns the state
-- as written.
function record.write(job, ...)
  local key, state = keys.job(job.ns, job.id), pack_state(job)
  redis.call("HSET", key, "state", state, ...)
  redis.call("PEXPIREAT", key, backstop(job))
  return state
end

-- The same for a visible change: tells the watchers.
function record.save(job, ...)
  local state = record.write(job, ...)
  record.changed(job)
  return state
end

-- Tells the replicas that asked for the job's next change.
function record.changed(job)
  if job.watchers then
    redis.call("HDEL", keys.job(job.ns, job.id), "watchers")
    for replica in string.gmatch(job.watchers, "%S+") do
      effects.notify(replica, "changed", PARTITION, job.ns, job.id)
    end
    job.watchers = nil
  end
end

-- When retention ends for a job whose ttl runs from `from`.
function record.expire_time(job, from)
  return math.max(from + job.ttl, job.window)
end

-- The key lives exactly as long as the record.
function record.keep_dedup(job)
  if job.dedup ~= "" then
    redis.call("PEXPIREAT", keys.dedup(job.dedup), backstop(job))
  end
end

-- Adds to the child counts of the job's parent, if that is present and no other of its id; never revives it.
function record.count_child(job, field, delta)
  if job.parent ~= "" then
    local key = keys.job(job.ns, job.parent)
    if string.match(redis.call("HGET", key, "route") or "", "^[^\n]*\n([^\n]*)") == job.kin then
      redis.call("HINCRBY", key, field, delta)
    end
  end
end

record.KIDS = { S = "kids_succeeded", F = "kids_failed", C = "kids_cancelled" }
