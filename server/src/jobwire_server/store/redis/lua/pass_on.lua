--- @include lib/waiters
-- Tells another waiting replica of a ready job, if the queue has one: the one that was told first has no use for it.

if waiters.has_ready(ns, queue) then
  effects.became_ready(ns, queue)
  effects.flush()
end
return 1
