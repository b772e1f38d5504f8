--- @include lib/lease
--- @include lib/waiters
--- @include lib/bytes
--- @include lib/memory
-- Claim: takes up to `max_jobs` ready jobs, no more than fit `max_bytes` but at least one, from the queues in the order
-- given; in a queue by priority, then by the ring of tenants, then by place in line.
--
-- First everything is chosen, only reading; then what was chosen is written. A repeat with the same token answers the
-- leases of its first try that still stand. With `waiting`, the replica is registered as waiting unless more jobs are
-- ready. Answers {more, waited, ns, id, token, fields, ns, id, token, fields, ...}; `waited`: how long the job that had
-- been ready for longest had waited, of a repeat 0.

local answer, taken, size, full = { 0, 0 }, {}, 0, false

-- Takes one chosen job into the answer, or returns false if it does not fit any more.
local function choose(job)
  local fields = record.read(job.ns, job.id, true)
  local bytes = ENVELOPE + #(fields[PAYLOAD] or "") + #(fields[LABELS] or "") + #(fields[ERROR] or "")
  if #taken > 0 and size + bytes > max_bytes then
    full = true
    return false
  end
  size = size + bytes
  job.fields = fields
  taken[#taken + 1] = job
  full = #taken == max_jobs
  return true
end

-- The members of one tenant's line, read a chunk at a time.
local function reader(key, chunk)
  local page, at, offset = {}, 1, 0
  return function()
    if at > #page then
      page = redis.call("ZRANGE", key, offset, offset + chunk - 1, "WITHSCORES")
      at, offset = 1, offset + chunk
    end
    at = at + 2
    return page[at - 2], tonumber(page[at - 1])
  end
end

-- The next job of a tenant that may be taken, nil at the end of its line. Ids whose record is gone, or stands elsewhere
-- by now, are noted to be dropped: never revived, never charged, and for the repair walk to count.
local function next_job(tenant, ns)
  for id, seq in tenant.read do
    local job = record.find(ns, id)
    if job and job.status == "P" and job.reason == "R" and job.seq == seq then
      return job
    end
    tenant.dropped[#tenant.dropped + 1] = id
  end
  return nil
end

-- Chooses from one priority of a queue. Tenants come in order of (virtual time, name); one that was chosen goes one unit
-- on. As all steps are equal, those come in order too: two sorted lists are merged, and each choice costs O(1).
local function choose_level(ns, queue, priority)
  local level = { ns = ns, queue = queue, priority = priority, tenants = {} }
  local wanted = max_jobs - #taken
  local fresh, again, f, a = {}, {}, 1, 1
  -- As many tenants as jobs are wanted are enough, unless some have only lost ones: then the next are looked at too.
  local function read_ring()
    local ring = redis.call("ZRANGE", keys.ring(ns, queue, priority), #fresh, #fresh + wanted - 1, "WITHSCORES")
    local chunk = math.ceil(2 * wanted / math.max(#ring / 2, 1))
    for i = 1, #ring, 2 do
      local key = keys.line(ns, queue, priority, ring[i])
      fresh[#fresh + 1] = { name = ring[i], tag = tonumber(ring[i + 1]), line = key, read = reader(key, chunk),
        ids = {}, dropped = {} }
    end
  end
  while not full do
    if f > #fresh and #fresh % wanted == 0 then
      read_ring()
    end
    local x, y = fresh[f], again[a]
    if not x and not y then
      break
    end
    local tenant
    if x and (not y or x.tag < y.tag or (x.tag == y.tag and bytes_less(x.name, y.name))) then
      tenant, f = x, f + 1
      level.tenants[#level.tenants + 1] = tenant
    else
      tenant, a = y, a + 1
    end
    local job = next_job(tenant, ns)
    if job and choose(job) then
      tenant.ids[#tenant.ids + 1] = job.id
      tenant.tag = tenant.tag + 1
      again[#again + 1] = tenant
    end
  end
  return level
end

-- In chunks: `unpack` takes some thousand values at most, and a line may have lost any number of jobs.
local function remove(line_key, ids)
  for i = 1, #ids, 1000 do
    redis.call("ZREM", line_key, unpack(ids, i, math.min(i + 999, #ids)))
  end
end

-- Writes what was chosen from a level: lines, ring, debts.
local function leave_level(level)
  local ring = keys.ring(level.ns, level.queue, level.priority)
  local left = false
  for _, tenant in ipairs(level.tenants) do
    remove(tenant.line, tenant.ids)
    remove(tenant.line, tenant.dropped)
    if redis.call("EXISTS", tenant.line) == 1 then
      redis.call("ZADD", ring, tenant.tag, tenant.name)
    else
      left = true
      redis.call("ZREM", ring, tenant.name)
      if #tenant.ids > 0 then
        redis.call("ZADD", keys.debts(level.ns, level.queue, level.priority), tenant.tag, tenant.name)
      end
    end
  end
  if not (left and line.close_level(level.ns, level.queue, level.priority)) then
    line.forget_debts(level.ns, level.queue, level.priority)
  end
end

-- Grants the i-th lease.
local function grant(job, i)
  local lease_token = token .. "-" .. (i - 1)
  answer[2] = math.max(answer[2], now - (job.deadline - job.queue_timeout))
  job.status, job.reason, job.attempt = "R", "-", job.attempt + 1
  job.started, job.heartbeat = now, now
  job.lease_ms = job.lease > 0 and job.lease or lease_ms
  job.receipt = receipt_ms > 0 and receipt_ms or 0
  job.deadline = now + (job.receipt > 0 and math.min(job.receipt, job.lease_ms) or job.lease_ms)
  job.token, job.owner, job.worker = lease_token, replica, worker
  job.fields[2] = transition.lease(job)
  return lease_token, keys.ref(job.ns, job.id)
end

local function add(job, lease_token, fields)
  answer[#answer + 1] = job.ns
  answer[#answer + 1] = job.id
  answer[#answer + 1] = lease_token
  answer[#answer + 1] = fields
end

local function repeat_answer(refs)
  local i = 0
  for ref in string.gmatch(refs, "[^\n]+") do
    local ns, id = keys.split_ref(ref)
    local job = record.find(ns, id)
    local lease_token = token .. "-" .. i
    if job and lease.holds(job, lease_token) then
      add(job, lease_token, record.read(ns, id, true))
    end
    i = i + 1
  end
end

local function claim_all()
  memory.spared()
  local earlier = redis.call("GET", keys.claimed(token))
  if earlier then
    repeat_answer(earlier)
  else
    local levels = {}
    for _, item in ipairs(queues) do
      for _, priority in ipairs(redis.call("ZREVRANGE", keys.priorities(item.ns, item.queue), 0, -1)) do
        if not full then
          levels[#levels + 1] = choose_level(item.ns, item.queue, tonumber(priority))
        end
      end
    end
    for _, level in ipairs(levels) do
      leave_level(level)
    end
    local refs = {}
    for i, job in ipairs(taken) do
      local lease_token, ref = grant(job, i)
      refs[i] = ref
      add(job, lease_token, job.fields)
    end
    if #refs > 0 then
      redis.call("SET", keys.claimed(token), table.concat(refs, "\n"), "PX", CLAIM_REPEATABLE)
    end
  end

  for _, item in ipairs(queues) do
    if waiters.has_ready(item.ns, item.queue) then
      answer[1] = 1
    end
  end
  if waiting == 1 and answer[1] == 0 then
    for _, item in ipairs(queues) do
      waiters.register(item.ns, item.queue, replica)
    end
  end
  return answer
end
