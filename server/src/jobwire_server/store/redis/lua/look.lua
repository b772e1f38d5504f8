--- @include lib/waiters
--- @include lib/memory
-- Which of the queues have a ready job (1) or not (0); this replica waits for those that have none.

memory.spared()
local answers = {}
for i, item in ipairs(items) do
  if waiters.has_ready(item.ns, item.queue) then
    answers[i] = 1
  else
    answers[i] = 0
    waiters.register(item.ns, item.queue, replica)
  end
end
return answers
