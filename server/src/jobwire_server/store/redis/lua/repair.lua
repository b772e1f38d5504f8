--- @include lib/mend
--- @include lib/memory
-- Repair: one slice of the walk over a partition's records: each is put where its state says, in every index, and
-- counted. `cursor` is the engine's SCAN cursor; with `begins` the walk begins, unless one is under way. Answers
-- {new cursor, {sort, number, ...} mended}, or nothing if another walk is under way, or none.
local TIMERS = { keys.due, keys.lease, keys.gone }

local function stand_in_timer(job, ref)
  for _, timer in ipairs(TIMERS) do
    if timer ~= transition.timer(job) then
      mend.note("timer", redis.call("ZREM", timer, ref))
    elseif tonumber(redis.call("ZSCORE", timer, ref) or -1) ~= job.deadline then
      redis.call("ZADD", timer, job.deadline, ref)
      mend.note("timer", 1)
    end
  end
end

local function stand_in_line(job)
  local seq = redis.call("ZSCORE", keys.line(job.ns, job.queue, job.priority, job.tenant), job.id)
  if transition.place(job) ~= "ready" then
    if seq then
      line.leave(job)
      mend.note("line", 1)
    end
    return
  end
  local ring, priorities = keys.ring(job.ns, job.queue, job.priority), keys.priorities(job.ns, job.queue)
  if redis.call("EXISTS", ring) == 0 then
    -- The debts are of a time that was lost with the ring.
    redis.call("DEL", keys.debts(job.ns, job.queue, job.priority))
  end
  local missing = not redis.call("ZSCORE", priorities, job.priority)
  if tonumber(seq or -1) ~= job.seq or not redis.call("ZSCORE", ring, job.tenant) or missing then
    line.enter(job, false)
    redis.call("ZADD", priorities, job.priority, job.priority)
    mend.note("line", 1)
  end
end

local function stand_in_list(sort, key, job)
  if tonumber(redis.call("ZSCORE", key, job.id) or -1) ~= job.created then
    redis.call("ZADD", key, job.created, job.id)
    mend.note(sort, 1)
  end
end

local function hold_dedup(job)
  local key = keys.dedup(job.dedup)
  if redis.call("EXISTS", key) == 0 then
    redis.call("SET", key, job.id)
    record.keep_dedup(job)
    mend.note("dedup", 1)
  end
end

local function visit(key, ns, id)
  local present, past = record.find(ns, id)
  local job = present or past
  if not job then
    -- Half a record goes. One that says something in another form is not ours to judge: another release may read it.
    local texts = redis.call("HMGET", key, "route", "state")
    if not (texts[1] and texts[2]) then
      redis.call("DEL", key)
      mend.note("record", 1)
    end
    return
  end
  if tonumber(redis.call("GET", keys.seq) or 0) < job.seq then
    redis.call("SET", keys.seq, job.seq)
    mend.note("seq", 1)
  end
  stand_in_timer(job, keys.ref(ns, id))
  stand_in_list("ids", keys.ids(ns), job)
  if job.queue ~= "" then
    stand_in_line(job)
  end
  if job.parent ~= "" then
    stand_in_list("children", keys.children(ns, job.parent), job)
  end
  if present and job.dedup ~= "" then
    hold_dedup(job)
  end
  if redis.call("PTTL", key) < 0 then
    record.write(job)
    mend.note("ttl", 1)
  end
  if job.walk ~= number then
    job.walk = number
    effects.recount(job, transition.place(job))
    record.write(job)
  end
end

memory.spared()
if begins == 1 and effects.walk() == 0 then
  redis.call("DEL", keys.recount)
  redis.call("HSET", keys.recount, "walk", number)
  redis.call("SET", keys.walk, number)
  effects.begin_walk(number)
end
if not mend.goes_on() then
  return {}
end
local scanned = redis.call("SCAN", cursor, "MATCH", mend.pattern("job:*"), "COUNT", slice)
for _, key in ipairs(scanned[2]) do
  local ns, id = keys.split_ref(string.sub(key, #PREFIX + #"job:" + 1))
  if ns then
    visit(key, ns, id)
  end
end
effects.flush()
return { scanned[1], mend.report() }
