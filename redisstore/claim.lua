-- Claims windows: the processes that have leased units of them give these back.
--
-- KEYS  the sorted set of claims, scored by the server's clock in Unix milliseconds
-- ARGV  how long a claim lasts, in milliseconds; how many there may be; then the windows
--
-- One that does not fit is not claimed. Returns the number of claims.
local call,k,lasts,t=redis.call,KEYS[1],ARGV[1]+0,redis.call('TIME')
local now=t[1]*1000+math.floor(t[2]/1000)
call('ZREMRANGEBYSCORE',k,'-inf',now-lasts)
local n=call('ZCARD',k)
for i=3,#ARGV do
  if n<ARGV[2]+0 then n=n+call('ZADD',k,now,ARGV[i]) end
end
call('PEXPIRE',k,lasts)
return n
