--- @include lib/mend
--- @include lib/memory
-- Repair: one slice of the walk over a partition's keys. The first pass puts every record where its state says, in
-- every index, and counts it; the second (`second` 1) only names the indexes, for `repair_index`. `cursor` is the
-- engine's SCAN cursor; with `begins` the walk begins, unless one is under way. Answers {new cursor,
-- {sort, number, ...} mended, index key, ...}, or nothing if another walk is under way, or none.

local INDEXES = {
  due = true, lease = true, gone = true, ids = true, children = true, line = true, ring = true, priorities = true,
}
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
    redis.call("DEL", key)
    mend.note("record", 1)
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
  effects.begin_walk(number)
elseif effects.walk() ~= number then
  return {}
end
redis.call("PEXPIRE", keys.walk, WALK_EXPIRY)

local pattern = string.gsub(PREFIX, "[%[%]*?\\^-]", "\\%0") .. (second == 1 and "*" or "job:*")
local scanned = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", slice)
local answer = { scanned[1], false }
for _, key in ipairs(scanned[2]) do
  local sort, names = string.match(string.sub(key, #PREFIX + 1), "^(%a+):?(.*)$")
  local ns, id = keys.split_ref(names or "")
  if second == 1 and INDEXES[sort] then
    answer[#answer + 1] = key
  elseif second == 0 and ns then
    visit(key, ns, id)
  end
end
effects.flush()
answer[2] = mend.report()
return answer
