--- @include lib/record
-- ListIds: {create time, id, ...} of up to `limit` present jobs of the namespace, newest first. Entries whose record
-- is past its expire time, or lost, are passed over.

local answer, from = {}, 0
repeat
  local page = redis.call("ZREVRANGE", keys.ids(ns), from, from + limit - 1, "WITHSCORES")
  for i = 1, #page, 2 do
    if #answer < 2 * limit and record.find(ns, page[i]) then
      answer[#answer + 1] = page[i + 1]
      answer[#answer + 1] = page[i]
    end
  end
  from = from + limit
until #page == 0 or #answer == 2 * limit
return answer
