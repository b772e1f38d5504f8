--- @include lib/lease
-- What became of lease tokens: 0 held, 1 settled, 2 lost.

local states = {}
for i, item in ipairs(items) do
  local job = record.find(item.ns, item.id)
  if job and lease.holds(job, item.token) then
    states[i] = 0
  else
    local outcome = job and lease.settled(job, item.token)
    states[i] = (outcome and string.find("CFR", outcome, 1, true)) and 1 or 2
  end
end
return states
