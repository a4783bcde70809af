-- Takes tokens from the bucket of a key, by the generic cell rate algorithm. The value is the time at which the bucket
-- is full again, in microseconds since 2023-11-14, so that a double has their fractions.
-- ARGV: microseconds between two tokens, the most tokens, tokens by which it may be emptied further, tokens that are
-- taken in any case (below zero: given back), tokens that are wanted.
-- Returns the tokens that were granted of those wanted, and the microseconds until there is another one; below zero those
-- since there is one, and one more for each interval of them.
local interval, burst, overdraft = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local charged, wanted = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = (tonumber(time[1]) - 1700000000) * 1000000 + tonumber(time[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
-- No key is further ahead, whichever way the clock was set.
local last = now + (burst + overdraft) * interval
tat = math.max(now, math.min(last, math.max(tat, now) + charged * interval))
local full = now + burst * interval
local granted = math.max(0, math.min(wanted, math.floor((full - tat) / interval + 0.0001)))
tat = tat + granted * interval
if tat > now then
  redis.call('SET', KEYS[1], string.format('%.3f', tat), 'PX', math.ceil((tat - now) / 1000))
else
  redis.call('DEL', KEYS[1])
end
return { granted, math.ceil(tat + interval - full) }
