--- @include lib/transition
-- Delete: 1 if there was such a job, 0 if not, or the current etag if `etag` is given and another one.

local job = record.find(ns, id)
if not job then
  return 0
elseif etag ~= "" and etag ~= record.etag(job) then
  return record.etag(job)
end
record.count_child(job, "kids", -1)
if record.ended(job) then
  record.count_child(job, record.KIDS[job.status], -1)
end
transition.remove(job)
effects.flush()
return 1
