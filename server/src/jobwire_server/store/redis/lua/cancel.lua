--- @include lib/transition
-- Cancel: {CODE_OK, field ...} with the job as it is now, CANCELLED by this call or an earlier one;
-- {CODE_ENDED, field ...} if it had ended otherwise; {CODE_NOT_FOUND}; {CODE_RUNNING}.

local function cancel()
  local job = record.find(ns, id)
  if not job then
    return { CODE_NOT_FOUND }
  elseif job.status == "S" or job.status == "F" then
    return { CODE_ENDED, unpack(record.read(ns, id, false)) }
  elseif job.status ~= "C" then
    if job.queue == "" then
      job.status, job.finished = "C", now
      record.bump(job)
      record.count_child(job, record.KIDS.C, 1)
      record.save(job, "cancel", cancellation)
    elseif job.status == "P" then
      transition.finish(job, "C", "cancel", cancellation)
    else
      return { CODE_RUNNING }
    end
  end
  return { CODE_OK, unpack(record.read(ns, id, false)) }
end

local answered = cancel()
effects.flush()
return answered
