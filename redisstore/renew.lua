-- Renews slots.
--
-- KEYS  the sorted set of each take's slots, as in hold.lua
-- ARGV  how long a slot is held, in milliseconds; then for each its take's name and number of slots
--
-- A slot that has expired is taken again, also beyond the limit: its request is still under way.
-- Returns the number of these.
local call,lasts,t,again=redis.call,ARGV[1]+0,redis.call('TIME'),0
local expires=t[1]*1000+math.floor(t[2]/1000)+lasts
for j=1,#KEYS do
  for i=1,ARGV[2*j+1]+0 do again=again+call('ZADD',KEYS[j],expires,ARGV[2*j]..':'..i) end
  call('PEXPIRE',KEYS[j],2*lasts)
end
return again
