--- @include lib/transition
-- The repair walk: what each of its scripts is made of. A walk has a number, kept under a key that expires when nobody
-- goes on with it. It meets every record once and counts it; whatever moves a counted job meanwhile moves it in that
-- count too (see `effects.count`), so that the count is exact at the end, whatever went on.
local mend = { mended = {} }

-- Whether this walk is still the one under way; if so it stays that for a while. The count has a field of the walk's own,
-- so that no count at all is told from a count of nothing.
function mend.goes_on()
  if effects.walk() ~= number or redis.call("HGET", keys.recount, "walk") ~= tostring(number) then
    return false
  end
  redis.call("PEXPIRE", keys.walk, WALK_EXPIRY)
  redis.call("PEXPIRE", keys.recount, WALK_EXPIRY)
  return true
end

-- Notes that something of a sort was mended.
function mend.note(sort, number)
  if number > 0 then
    mend.mended[sort] = (mend.mended[sort] or 0) + number
  end
end

-- The partition's keys, as SCAN matches them.
function mend.pattern(rest)
  return string.gsub(PREFIX, "[%[%]*?\\^-]", "\\%0") .. rest
end

-- The end of a script's answer: {sort, number, sort, number, ...}.
function mend.report()
  local report = {}
  for sort, times in pairs(mend.mended) do
    report[#report + 1] = sort
    report[#report + 1] = times
  end
  return report
end
