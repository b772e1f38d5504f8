--- @include lib/keys
--- @include lib/clock
-- What a script owes at its end: numbers to add, replicas to tell. Gathered, so that a batch pays once per queue.
local effects = { counts = {}, recounts = {}, ready = {}, notices = {} }

local function add(counts, field, delta)
  counts[field] = (counts[field] or 0) + delta
end

-- The number of the repair walk under way, 0 if there is none.
local walk
function effects.walk()
  walk = walk or tonumber(redis.call("GET", keys.walk) or 0)
  return walk
end

local TIMERS = { ready = "due", scheduled = "due", running = "lease", ended = "gone", state = "gone" }

function effects.begin_walk(number)
  walk = number
end

-- Counts a job in its place, if that is one of a queue ("ready", "scheduled", "running"), and in all that its timer has.
local function tally(counts, job, place, delta)
  add(counts, US .. US .. TIMERS[place], delta)
  if TIMERS[place] ~= "gone" then
    add(counts, job.ns .. US .. job.queue .. US .. place, delta)
  end
end

-- A job that the repair walk has counted already is moved in its count too.
function effects.count(job, place, delta)
  tally(effects.counts, job, place, delta)
  if job.walk > 0 and job.walk == effects.walk() then
    tally(effects.recounts, job, place, delta)
  end
end

-- The repair walk meets the job for the first time.
function effects.recount(job, place)
  tally(effects.recounts, job, place, 1)
end

-- One more job of the queue may be claimed: some waiting replica should know.
function effects.became_ready(ns, queue)
  local name = ns .. US .. queue
  effects.ready[name] = (effects.ready[name] or 0) + 1
end

-- A job that this script has just made ready was claimed by it: nobody need know.
function effects.taken(ns, queue)
  local name = ns .. US .. queue
  effects.ready[name] = (effects.ready[name] or 0) - 1
end

function effects.notify(replica, ...)
  effects.notices[#effects.notices + 1] = { replica, table.concat({ ... }, US) }
end

-- Takes as many replicas off the queue's waiters as jobs became ready, the longest waiting first.
local function wake(name, jobs)
  local ns, queue = keys.split_ref(name)
  while jobs > 0 do
    local waiters = redis.call("ZPOPMIN", keys.waiters(ns, queue), jobs)
    if #waiters == 0 then
      return
    end
    for i = 1, #waiters, 2 do
      if tonumber(waiters[i + 1]) > now then
        effects.notify(waiters[i], "ready", PARTITION, ns, queue)
        jobs = jobs - 1
      end
    end
  end
end

local function write(key, counts)
  for field, delta in pairs(counts) do
    if delta ~= 0 and redis.call("HINCRBY", key, field, delta) <= 0 then
      redis.call("HDEL", key, field)
    end
  end
end

function effects.flush()
  write(keys.counts, effects.counts)
  write(keys.recount, effects.recounts)
  for name, jobs in pairs(effects.ready) do
    wake(name, jobs)
  end
  for _, notice in ipairs(effects.notices) do
    redis.call("PUBLISH", CHANNEL .. notice[1], notice[2])
  end
end
