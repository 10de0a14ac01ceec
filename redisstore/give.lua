-- Adds units that were counted elsewhere to one window, even beyond its limit.
--
-- KEYS  the window; the mark of a window that a give has created, which is left out
--       while a cluster has the two on different machines
-- ARGV  units, length and reset of the window, as they were counted elsewhere
--
-- A new window gets the given reset. A window that a take has created keeps its own. A window that
-- another give has created was also counted elsewhere, without knowledge of this one: the earlier
-- reset wins, so that no caller sees its reset move later. The mark holds that window's reset, and
-- expires with it.
--
-- If the clock was set back, a window ends earlier than its takes were told, as in take.lua: their
-- settlement is voided.
--
-- Returns 1, or 0 if the window has ended: its units belong to no later window. Windows are written
-- as in take.lua.
local call,k,mark,B,M=redis.call,KEYS[1],KEYS[2],2147483648,4194303
local units,per,reset=ARGV[1]+0,ARGV[2]+0,ARGV[3]+0
local now=call('TIME')[1]+0
if reset<=now then return 0 end
if reset>now+per then reset=now+per end
local c,given=0,true
local v=call('GET',k)
if v then
  c=v%B
  local r=now+((v-c)/B-now)%M
  local p=call('PTTL',k)
  if p>per*1000 and (r>now+per or p>(per+60)*1000) then
    redis.pcall('SET',k..':reset',(now+1)*1000+p,'PX',p)
    local all=string.match(k,'^[^{]*')..'resets'
    redis.pcall('SET',all,'9007199254740991','EX',M)
    redis.pcall('SET',all..':number',(tonumber(redis.pcall('GET',all..':number')) or now*1000)+1,'EX',M)
    given,reset=false,now+per
  elseif r==now or r>now+per then
    c=0
  else
    given=mark and (call('GET',mark) or 0)+0==r
    if r<reset or not given then reset=r end
  end
end
c=c+units
if c>B-1 then c=B-1 end
call('SET',k,reset%M*B+c,'EXAT',reset)
if given and mark then call('SET',mark,reset,'EXAT',reset) end
return 1
