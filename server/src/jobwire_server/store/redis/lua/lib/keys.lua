-- Every key of a partition. PREFIX holds the partition's hash tag, so all of them stand in one slot. Parts of names are
-- joined by the unit separator, which no name may hold: two different names never meet in one key.
--
-- Permanent kinds, gone when empty: line, ring, debts, priorities, due, lease, gone, ids, children, counts, seq.
-- With a TTL: job, dedup, waiters, claimed, alive, walk, walked, recount.
local US = "\31"
local BASE, PARTITION = string.match(PREFIX, "^(.*){(%d+)}:$")
local CHANNEL = BASE .. "replica:" -- followed by the replica's name: where it hears notices
local keys = {
  due = PREFIX .. "due", -- ZSET of refs by run time or queue deadline
  lease = PREFIX .. "lease", -- ZSET of refs by lease deadline
  gone = PREFIX .. "gone", -- ZSET of refs by expire time
  counts = PREFIX .. "counts", -- HASH of numbers by namespace, queue and place
  seq = PREFIX .. "seq", -- the partition's counter of places in line
  spared = PREFIX .. "spared", -- never there; see `memory.lua`
  walk = PREFIX .. "walk", -- STRING: the number of the repair walk under way
  walked = PREFIX .. "walked", -- STRING: a repair walk was here not long ago
  recount = PREFIX .. "recount", -- HASH: `counts` as that walk finds them
  alive = PREFIX .. "alive", -- STRING: the latest proof that the engine takes writes
}

-- Names a job in the timers.
function keys.ref(ns, id)
  return ns .. US .. id
end

-- HASH: the record.
function keys.job(ns, id)
  return PREFIX .. "job:" .. ns .. US .. id
end

-- ZSET of ids by seq: the READY jobs of one tenant in one priority of a queue.
function keys.line(ns, queue, priority, tenant)
  return PREFIX .. "line:" .. ns .. US .. queue .. US .. priority .. US .. tenant
end

-- ZSET of tenants by virtual time: those with a line.
function keys.ring(ns, queue, priority)
  return PREFIX .. "ring:" .. ns .. US .. queue .. US .. priority
end

-- ZSET of tenants by virtual time: those who left the ring ahead of it.
function keys.debts(ns, queue, priority)
  return PREFIX .. "debts:" .. ns .. US .. queue .. US .. priority
end

-- ZSET of the priorities that have a ring, by themselves.
function keys.priorities(ns, queue)
  return PREFIX .. "priorities:" .. ns .. US .. queue
end

-- ZSET of replicas by the time until which they wait for the queue.
function keys.waiters(ns, queue)
  return PREFIX .. "waiters:" .. ns .. US .. queue
end

-- ZSET of the ids of a namespace by create time.
function keys.ids(ns)
  return PREFIX .. "ids:" .. ns
end

-- ZSET of a job's children by create time.
function keys.children(ns, id)
  return PREFIX .. "children:" .. ns .. US .. id
end

-- STRING: the id of the job that has the dedup key `name`.
function keys.dedup(name)
  return PREFIX .. "dedup:" .. name
end

-- STRING of refs joined by newlines: what a claim with this token took.
function keys.claimed(token)
  return PREFIX .. "claimed:" .. token
end

function keys.split_ref(ref)
  return string.match(ref, "^([^\31]*)\31(.*)$")
end
