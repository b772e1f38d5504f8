--- @include lib/lease
--- @include lib/memory
-- Cancel: {CODE_OK, field ...} with the job as it is now, CANCELLED by this call or an earlier one;
-- {CODE_ENDED, field ...} if it had ended otherwise; {CODE_RUNNING, field ...} if its worker was asked, now or earlier;
-- {CODE_NOT_FOUND}.

local function text(deadline)
  return deadline .. "\n" .. reason
end

-- Asks the worker. The earliest revocation that anybody asked for counts, and the first reason.
local function ask(job)
  local revoke_at = now + grace
  if job.cancel_at > 0 and job.cancel_at <= revoke_at then
    return
  end
  local earlier = job.cancel_at > 0 and redis.call("HGET", keys.job(ns, id), "cancel")
  if earlier then
    reason = string.match(earlier, "\n(.*)$")
  end
  job.cancel_at, job.deadline = revoke_at, math.min(job.deadline, revoke_at)
  redis.call("ZADD", keys.lease, job.deadline, keys.ref(ns, id))
  record.bump(job)
  record.save(job, "cancel", text(revoke_at))
  effects.notify(job.owner, "cancel", PARTITION, ns, job.token)
end

local function cancel()
  local job = record.find(ns, id)
  if not job then
    return { CODE_NOT_FOUND }
  elseif job.status == "S" or job.status == "F" then
    return { CODE_ENDED, unpack(record.read(ns, id, false)) }
  elseif job.queue == "" and job.status ~= "C" then
    job.status, job.finished = "C", now
    record.bump(job)
    record.count_child(job, record.KIDS.C, 1)
    record.save(job, "cancel", text(0))
  elseif job.status == "P" then
    transition.finish(job, "C", "cancel", text(0))
  elseif job.status == "R" then
    ask(job)
    if job.cancel_at > now then
      return { CODE_RUNNING, unpack(record.read(ns, id, false)) }
    end
    lease.lose(job, "", false)
  end
  return { CODE_OK, unpack(record.read(ns, id, false)) }
end

memory.spared()
local answered = cancel()
effects.flush()
return answered
