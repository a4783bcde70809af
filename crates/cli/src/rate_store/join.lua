-- Notes that a process shares the store, and counts those that have said so lately.
-- ARGV: the process, and the seconds for which it counts.
local time = redis.call('TIME')
local now, lasts = tonumber(time[1]) + tonumber(time[2]) / 1000000, tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lasts)
-- A clock that was set back would keep processes that have ended.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + lasts, '+inf')
redis.call('ZADD', KEYS[1], string.format('%.3f', now), ARGV[1])
redis.call('EXPIRE', KEYS[1], lasts * 2)
return redis.call('ZCARD', KEYS[1])
