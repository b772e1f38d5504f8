--- @include lib/record
--- @include lib/bytes
-- ListIds: {last, create time, id, ...} of up to `limit` present jobs of the namespace, newest first, after the cursor
-- (created, after) unless `after` is empty. Entries whose record is past its expire time, or lost, are passed over; of
-- all entries at most `slice` are looked at. last is {create time, id} of the last one, false when no more follow.

local key = keys.ids(ns)
local from = 0
if after ~= "" and tonumber(redis.call("ZSCORE", key, after) or -1) == created then
  from = redis.call("ZREVRANK", key, after) + 1
elseif after ~= "" then
  -- The cursor's job is gone: pass over what the engine orders before it.
  from = redis.call("ZCOUNT", key, "(" .. created, "+inf")
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", key, created, created)) do
    if bytes_less(after, id) then
      from = from + 1
    end
  end
end

local answer, looked = { false }, 0
local page = redis.call("ZREVRANGE", key, from, from + slice - 1, "WITHSCORES")
for i = 1, #page, 2 do
  if #answer == 2 * limit + 1 then
    break
  end
  if record.find(ns, page[i]) then
    answer[#answer + 1] = page[i + 1]
    answer[#answer + 1] = page[i]
  end
  looked = looked + 1
end
if looked == slice or 2 * looked < #page then
  answer[1] = { page[2 * looked], page[2 * looked - 1] }
end
return answer
