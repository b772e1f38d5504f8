-- The engine's clock in milliseconds, unless a test gives its own.
if now == 0 then
  local time = redis.call("TIME")
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
