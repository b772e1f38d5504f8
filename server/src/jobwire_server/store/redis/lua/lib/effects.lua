--- @include lib/keys
--- @include lib/clock
-- What a script owes at its end: numbers to add, replicas to tell. Gathered, so that a batch pays once per queue.
local effects = { counts = {}, ready = {}, notices = {} }

-- The place of a queued job in the statistics: "ready", "scheduled", "running".
function effects.count(ns, queue, place, delta)
  local field = ns .. US .. queue .. US .. place
  effects.counts[field] = (effects.counts[field] or 0) + delta
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

function effects.flush()
  for field, delta in pairs(effects.counts) do
    if delta ~= 0 and redis.call("HINCRBY", keys.counts, field, delta) <= 0 then
      redis.call("HDEL", keys.counts, field)
    end
  end
  for name, jobs in pairs(effects.ready) do
    wake(name, jobs)
  end
  for _, notice in ipairs(effects.notices) do
    redis.call("PUBLISH", CHANNEL .. notice[1], notice[2])
  end
end
