--- @include lib/record
--- @include lib/bytes
-- ListChildren: children after the cursor (created, after), up to `limit`, or fewer when `budget` bytes are read. Answers
-- {last, id, fields, id, fields, ...}; last is the (create time .. " " .. id) of the last child looked at, false when no
-- more follow.

local REST = 640 -- what a job has in an answer besides its fields, at most: names, times, etag
local key = keys.children(ns, parent)
local from
if after ~= "" and tonumber(redis.call("ZSCORE", key, after) or -1) == created then
  from = redis.call("ZRANK", key, after) + 1
else
  -- The cursor's child is gone: pass over what the engine orders before it.
  from = redis.call("ZCOUNT", key, "-inf", "(" .. created)
  local ties = redis.call("ZRANGEBYSCORE", key, created, created)
  for _, id in ipairs(ties) do
    if id == after or bytes_less(id, after) then
      from = from + 1
    end
  end
end

local answer, size = { false }, 0
local page = redis.call("ZRANGE", key, from, from + limit, "WITHSCORES")
for i = 1, math.min(#page, 2 * limit), 2 do
  local id = page[i]
  if record.find(ns, id) then
    local fields = record.read(ns, id, full == 1)
    size = size + REST
    for j = 1, #fields do
      size = size + #(fields[j] or "")
    end
    if size > budget and #answer > 1 then
      return answer
    end
    answer[#answer + 1] = id
    answer[#answer + 1] = fields
  end
  answer[1] = page[i + 1] .. " " .. id
end
if #page <= 2 * limit then
  answer[1] = false
end
return answer
