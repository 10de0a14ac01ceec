-- Adds units that were spent elsewhere to one window, over its limit if need be.
--
-- KEYS  the window
-- ARGV  units, length and reset of the window, as they were counted elsewhere
--
-- Answers 1, or 0 where both windows have ended and there is nothing to add to. The window is kept as in take.lua.
local call,k,B,M=redis.call,KEYS[1],2147483648,4194303
local units,per,reset=ARGV[1]+0,ARGV[2]+0,ARGV[3]+0
local now=call('TIME')[1]+0
local c=0
local v=call('GET',k)
if v then
  c=v%B
  local r=now+((v-c)/B-now)%M
  local p=call('PTTL',k)
  if p>per*1000 and (r>now+per or p>(per+60)*1000) then
    reset=now+per
  elseif r==now or r>now+per then
    c=0
  else
    reset=r
  end
end
if reset<=now then return 0 end
if reset>now+per then reset=now+per end
c=c+units
if c>B-1 then c=B-1 end
call('SET',k,reset%M*B+c,'EXAT',reset)
return 1
