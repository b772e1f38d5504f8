--- @include lib/lease
--- @include lib/memory
-- Create: stores jobs, each wholly or not at all, in the order given.
--
-- items: see `scripts.CREATE_ITEM`. Answers per item one of
--   {CODE_OK, route, state}            created
--   {CODE_REPEATED, id, field ...}     this request's own first try, or
--   {CODE_FOUND, id, field ...}        the dedup key's first job, as it is now
--   {CODE_EXISTS, id}  {CODE_DEDUP_MISMATCH, id}  {CODE_PARENT_NOT_FOUND}  {CODE_LEASE_LOST}  {CODE_TOO_FAR}

local function answer(code, job)
  return { code, job.id, unpack(record.read(job.ns, job.id, false)) }
end

-- Whether an earlier try of the same request made the job: the caller's retry, or ours after a lost answer.
local function is_own(item, job)
  return (item.request ~= "" and item.request == job.request) or item.nonce == job.nonce
end

-- The first job under the item's dedup key, if that is present.
local function find_first(item)
  local id = item.dedup ~= "" and redis.call("GET", keys.dedup(item.dedup))
  return id and record.find(item.ns, id)
end

local function create(item)
  local first = find_first(item)
  if first then
    if is_own(item, first) then
      return answer(CODE_REPEATED, first)
    elseif item.hash ~= first.hash then
      return { CODE_DEDUP_MISMATCH, first.id }
    end
    return answer(CODE_FOUND, first)
  end
  local same, past = record.find(item.ns, item.id)
  if same then
    if is_own(item, same) then
      return answer(CODE_REPEATED, same)
    end
    return { CODE_EXISTS, same.id }
  end
  local parent = item.parent ~= "" and record.find(item.ns, item.parent)
  if item.parent ~= "" then
    if not parent then
      return { CODE_PARENT_NOT_FOUND }
    elseif item.parent_token ~= "" and not lease.holds(parent, item.parent_token) then
      return { CODE_LEASE_LOST }
    end
  end
  local run_at = item.delay > 0 and now + item.delay or item.run_at
  if run_at > now + YEAR then
    return { CODE_TOO_FAR }
  end
  if past then
    transition.remove(past)
  end

  local job = {
    ns = item.ns, id = item.id, created = now, nonce = item.nonce, request = item.request,
    window = item.window > 0 and now + item.window or 0, queue_timeout = item.queue_timeout, lease = item.lease,
    max_attempts = item.max_attempts, queue = item.queue, tenant = item.tenant, parent = item.parent,
    dedup = item.dedup, hash = item.dedup ~= "" and item.hash or "",
    kin = parent and parent.nonce or "", status = item.status, reason = "-", version = 1, revision = 1, attempt = 0, failures = 0,
    losses = 0, seq = 0, priority = item.priority, updated = now, started = 0, heartbeat = 0, finished = 0,
    deadline = 0, ttl = item.ttl, token = "", lease_ms = 0, receipt = 0, undelivered = 0,
    cancel_at = 0, owner = "", mark = "", walk = effects.walk(), worker = "",
  }
  if job.queue == "" then
    job.deadline = record.expire_time(job, now)
    job.started = job.status == "R" and now or 0
    job.finished = record.ended(job) and now or 0
  elseif run_at > now then
    job.reason, job.deadline = "S", run_at
  else
    job.reason, job.deadline = "R", now + job.queue_timeout
  end

  local fields = { "route", pack_route(job), "spec", item.spec }
  for _, name in ipairs({ "payload", "ctype", "labels" }) do
    if item[name] ~= "" then
      fields[#fields + 1] = name
      fields[#fields + 1] = item[name]
    end
  end
  local state = transition.begin(job, unpack(fields))
  redis.call("ZADD", keys.ids(job.ns), now, job.id)
  if job.dedup ~= "" then
    redis.call("SET", keys.dedup(job.dedup), job.id)
    record.keep_dedup(job)
  end
  if job.parent ~= "" then
    redis.call("ZADD", keys.children(job.ns, job.parent), now, job.id)
    record.count_child(job, "kids", 1)
    if record.ended(job) then
      record.count_child(job, record.KIDS[job.status], 1)
    end
  end
  return { CODE_OK, fields[2], state }
end

local function create_all()
  memory.needed()
  local answers = {}
  for i, item in ipairs(items) do
    answers[i] = create(item)
  end
  return answers
end
