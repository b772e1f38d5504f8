--- @include lib/transition
--- @include lib/memory
-- Update: the owner's change, all given fields or none.
--
-- Parameters named has_<field> are 1 where the field is given. Answers {CODE_OK, field ...} with the job as it is now,
-- or {CODE_NOT_FOUND}, {CODE_ETAG_MISMATCH, etag}, {CODE_ILLEGAL, status}, {CODE_TOO_FAR}.

local function answer()
  return { CODE_OK, unpack(record.read(ns, id, full == 1)) }
end

local function may_change(job)
  if job.queue == "" then
    return has_priority + has_start == 0
  elseif has_status + has_result + has_error + has_progress > 0 then
    return false
  end
  return job.status == "P" or has_payload + has_ctype + has_priority + has_start == 0
end

-- A state-only job's new status, with its times and its parent's counts.
local function set_status(job)
  local was_ended = record.ended(job)
  if was_ended and job.status ~= status then
    record.count_child(job, record.KIDS[job.status], -1)
  end
  if status == "R" and job.status ~= "R" then
    job.started = now
  end
  local before = job.status
  job.status = status
  if record.ended(job) then
    if not was_ended then
      job.finished = now
    end
    if before ~= status then
      record.count_child(job, record.KIDS[status], 1)
    end
  else
    job.finished = 0
  end
end

-- A pending job's new priority and earliest time.
local function set_start(job, run_at)
  if run_at > now then
    transition.shift(job, "P", "S", run_at, "new")
  end
  local other_line = has_priority == 1 and priority ~= job.priority
  if other_line and job.reason == "R" then
    line.leave(job)
    job.priority = priority
    line.enter(job, false)
  elseif other_line then
    job.priority = priority
  end
  if has_start == 1 and run_at <= now and job.reason ~= "R" then
    transition.shift(job, "P", "R", now + job.queue_timeout, "new")
  end
end

local function set_ttl(job)
  job.ttl = ttl
  if job.queue == "" then
    job.deadline = record.expire_time(job, now)
  elseif record.ended(job) then
    job.deadline = record.expire_time(job, job.finished)
  else
    return
  end
  redis.call("ZADD", keys.gone, job.deadline, keys.ref(ns, id))
  record.keep_dedup(job)
end

local function update()
  local job = record.find(ns, id)
  if not job then
    return { CODE_NOT_FOUND }
  elseif mark ~= "" and mark == job.mark then
    return answer()
  elseif etag ~= "" and etag ~= record.etag(job) then
    return { CODE_ETAG_MISMATCH, record.etag(job) }
  elseif not may_change(job) then
    return { CODE_ILLEGAL, job.status }
  end
  local run_at = has_start == 1 and (run_time > 0 and run_time or now + delay) or 0
  if run_at > now + YEAR then
    return { CODE_TOO_FAR }
  end

  local lasting = has_labels + has_ttl + has_payload + has_ctype + has_priority + has_start + has_status + has_result
    + has_error
  if lasting + has_progress == 0 then
    return answer()
  end
  memory.needed()
  if lasting > 0 then
    job.revision = job.revision + 1
  end
  job.version = job.version + 1
  job.updated = now
  job.mark = mark ~= "" and mark or job.mark

  local fields, cleared = {}, {}
  local function set(given, name, value)
    if given == 1 and value == "" then
      cleared[#cleared + 1] = name
    elseif given == 1 then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  set(has_labels, "labels", labels)
  set(has_payload, "payload", payload)
  set(has_ctype, "ctype", ctype)
  set(has_result, "result", result)
  set(has_error, "error", error_bytes)
  if has_progress == 1 then
    fields[#fields + 1] = "progress"
    fields[#fields + 1] = progress
  end
  if has_status == 1 then
    set_status(job)
  end
  if has_priority + has_start > 0 then
    set_start(job, run_at)
  end
  if has_ttl == 1 then
    set_ttl(job)
  end
  if #cleared > 0 then
    redis.call("HDEL", keys.job(ns, id), unpack(cleared))
  end
  record.save(job, unpack(fields))
  return answer()
end

local answered = update()
effects.flush()
return answered
