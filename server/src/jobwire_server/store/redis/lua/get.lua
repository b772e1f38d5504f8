--- @include lib/record
--- @include lib/memory
-- Get, BatchGet: the records' fields, in order; false where the job is absent. Stops, after at least one, when it has
-- read `budget` bytes. With `watcher`, that replica hears of each job's next change.

local answers, size = {}, 0
for i, item in ipairs(items) do
  local job = record.find(item.ns, item.id)
  if job then
    local fields = record.read(job.ns, job.id, full == 1)
    if full == 1 then
      size = size + #(fields[#fields - 1] or "") + #(fields[#fields] or "")
      if size > budget and i > 1 then
        break
      end
    end
    if watcher ~= "" then
      memory.spared()
      local watchers = job.watchers or ""
      if not string.find(" " .. watchers .. " ", " " .. watcher .. " ", 1, true) then
        redis.call("HSET", keys.job(job.ns, job.id), "watchers", watchers == "" and watcher or watchers .. " " .. watcher)
      end
    end
    answers[i] = fields
  else
    answers[i] = false
  end
end
return answers
