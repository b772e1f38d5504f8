--- @include lib/mend
--- @include lib/memory
-- One slice of the walk over a partition's keys that names its indexes, for `repair_index`. `cursor` is the engine's SCAN
-- cursor. Answers {new cursor, {}, index key, ...}, or nothing if the walk was given up.

local INDEXES = {
  due = true, lease = true, gone = true, ids = true, children = true, line = true, ring = true, priorities = true,
}

memory.spared()
if not mend.goes_on() then
  return {}
end
local scanned = redis.call("SCAN", cursor, "MATCH", mend.pattern("*"), "COUNT", slice)
local answer = { scanned[1], {} }
for _, key in ipairs(scanned[2]) do
  if INDEXES[string.match(string.sub(key, #PREFIX + 1), "^%a+")] then
    answer[#answer + 1] = key
  end
end
return answer
