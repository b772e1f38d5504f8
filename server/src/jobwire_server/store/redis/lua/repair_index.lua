--- @include lib/mend
--- @include lib/memory
-- One slice of an index in the repair walk: entries are dropped whose job is gone, or stands elsewhere by its state.
-- Answers {new cursor, {sort, number, ...}}, or nothing if the walk was given up.

local sort, names = string.match(string.sub(index, #PREFIX + 1), "^(%a+):?(.*)$")
local parts = {}
for part in string.gmatch(names .. US, "([^\31]*)\31") do
  parts[#parts + 1] = part
end

local function find(ns, id)
  local present, past = record.find(ns, id)
  return present or past
end

local function in_timer(ref)
  local ns, id = keys.split_ref(ref)
  local job = ns and find(ns, id)
  return job and transition.timer(job) == index
end

-- Whether an entry belongs there, by the sort of index.
local belongs = {
  due = in_timer,
  lease = in_timer,
  gone = in_timer,
  ids = function(id)
    return find(names, id)
  end,
  children = function(id)
    local job = find(parts[1], id)
    return job and job.parent == parts[2]
  end,
  line = function(id, seq)
    local job = find(parts[1], id)
    return job and transition.place(job) == "ready" and job.seq == tonumber(seq)
      and keys.line(job.ns, job.queue, job.priority, job.tenant) == index
  end,
  ring = function(tenant)
    return redis.call("EXISTS", keys.line(parts[1], parts[2], parts[3], tenant)) == 1
  end,
  priorities = function(priority)
    return redis.call("EXISTS", keys.ring(parts[1], parts[2], priority)) == 1
  end,
}
local SORTS = { due = "timer", lease = "timer", gone = "timer", ring = "line", priorities = "line" }

memory.spared()
if not mend.goes_on() then
  return {}
end
local scanned = redis.call("ZSCAN", index, cursor, "COUNT", slice)
for i = 1, #scanned[2], 2 do
  local member = scanned[2][i]
  if not belongs[sort](member, scanned[2][i + 1]) then
    mend.note(SORTS[sort] or sort, redis.call("ZREM", index, member))
  end
end
if redis.call("EXISTS", index) == 0 then
  if sort == "line" then
    redis.call("ZREM", keys.ring(parts[1], parts[2], parts[3]), parts[4])
  end
  if sort == "line" or sort == "ring" then
    line.close_level(parts[1], parts[2], parts[3])
  end
end
return { scanned[1], mend.report() }
