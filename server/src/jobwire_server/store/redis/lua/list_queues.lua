--- @include lib/effects
-- The queues that hold a live job: {ns, queue, ns, queue, ...}, each as often as it has places with jobs.

local answer = {}
for _, field in ipairs(redis.call("HKEYS", keys.counts)) do
  local ns, queue = string.match(field, "^([^\31]*)\31([^\31]+)\31%a+$")
  if queue then
    answer[#answer + 1] = ns
    answer[#answer + 1] = queue
  end
end
return answer
