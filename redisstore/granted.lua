-- Reads all grants.
--
-- KEYS  the hash of all grants, as in grant.lua
-- ARGV  the maximum number of grants
local call,K=redis.call,KEYS[1]
if call('HLEN',K)>2*ARGV[1] then return redis.error_reply('ERR more grants than can be, under '..K) end
return call('HGETALL',K)
