--- @include complete
--- @include fail
--- @include release
--- @include lib/memory
-- BatchSettle: many settlements of any verb, each fenced by its token, in the order given. Answers per item
-- {CODE_OK, status}, {CODE_REPEATED, status}, {CODE_NOT_FOUND} or {CODE_LEASE_LOST}.

local VERBS = { C = complete, F = fail, R = release }
local function settle_all()
  memory.spared()
  local answers = {}
  for i, item in ipairs(items) do
    local job = record.find(item.ns, item.id)
    answers[i] = lease.fence(job, item)
    if not answers[i] then
      lease.tell_owner(job, replica)
      VERBS[item.verb](job, item)
      answers[i] = { CODE_OK, job.status }
    end
  end
  return answers
end
