--- @include lib/lease
--- @include lib/memory
-- ReclaimStale: looks at up to `limit` leases in (deadline, name) order, after the cursor `after_deadline`, `after_ref`.
-- `before` 0: takes those that have run out; else those whose latest heartbeat is strictly before it, an operator's
-- override. Answers {looked at, deadline, ref, ns, id, ns, id, ...}, deadline and ref being the new cursor, ref empty
-- when all were looked at.

local from
if after_ref ~= "" and tonumber(redis.call("ZSCORE", keys.lease, after_ref) or -1) == after_deadline then
  from = redis.call("ZRANK", keys.lease, after_ref) + 1
else
  from = redis.call("ZCOUNT", keys.lease, "-inf", "(" .. after_deadline)
end

memory.spared()
local page = redis.call("ZRANGE", keys.lease, from, from + limit, "WITHSCORES")
local answer = { 0, 0, "" }
for i = 1, math.min(#page, 2 * limit), 2 do
  local ref, deadline = page[i], tonumber(page[i + 1])
  if before == 0 and deadline > now then
    page = {}
    break
  end
  local ns, id = keys.split_ref(ref)
  local job = record.find(ns, id)
  if not job or job.status ~= "R" then
    redis.call("ZREM", keys.lease, ref)
  elseif before == 0 or job.heartbeat < before then
    answer[#answer + 1] = ns
    answer[#answer + 1] = id
    lease.lose(job, lost_error, before > 0)
  end
  answer[1], answer[2], answer[3] = answer[1] + 1, deadline, ref
end
if #page <= 2 * limit then
  answer[3] = ""
end
effects.flush()
return answer
