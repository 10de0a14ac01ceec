-- Charges every window or none, as take.lua, and in the same step as many more units of each as its
-- caller wants and the window has left.
--
-- KEYS  the windows; then the mark of each window's last reset by an operator
-- ARGV  for each window the units wanted, the part of what is left that they may be, in thousandths,
--       and the least that is worth it, and the reset that the window must have, in Unix seconds
--       modulo M, or -1; then the arguments of take.lua
--
-- The mark KEY:leased, in the same slot, says until the window's end that units of it were granted:
-- see claim.lua. The mark of a reset is of the window before, and would end with that. A node that
-- holds units knows by it that their window was not reset since, so it lasts as long as they do.
--
-- If a window is not open, or has another reset than it must have, it returns {} and has changed
-- nothing: who asks for units before a request needs them opens no window.
--
-- The function take is take.lua. Returns one integer, as take.lua, if the take is too late or in
-- another span. Otherwise returns {the reply of take.lua}, and if the take is allowed after it the
-- units granted of each window, and each window's mark, 0 for none. The count in the reply of take.lua
-- does not have the granted units.
local K,A,B=KEYS,ARGV,2147483648
local n=#K/2
local windows,args={},{}
for i=1,n do windows[i]=K[i] end
for i=4*n+1,#A do args[i-4*n]=A[i] end
for i=1,n do
  local reset=A[3*n+i]+0
  if reset>=0 then
    local v=redis.call('GET',K[i])
    if not v or (v-v%B)/B~=reset or redis.call('PTTL',K[i])<1 then return {} end
  end
end
local out=take(windows,args)
if type(out)=='number' then return out end
local open,reply=#out==n+1,{out}
if not open and out[2]~=1 then return reply end
for i=1,n do
  local count,grant,limit=out[2*i+2],A[i]+0,args[i]%B
  if open then count=out[i==1 and 1 or i+1]%B end
  grant=math.min(grant,math.floor((limit-count)*A[n+i]/1000))
  if grant<A[2*n+i]+0 then grant=0 end
  local mark=redis.call('GET',K[n+i])
  if grant>0 then
    redis.call('INCRBY',K[i],grant)
    local left=math.max(1,redis.call('PTTL',K[i]))
    redis.pcall('SET',K[i]..':leased',1,'PX',left) -- its slot may be moving
    if mark and left>redis.call('PTTL',K[n+i]) then redis.call('SET',K[n+i],mark,'PX',left) end
  end
  reply[i+1],reply[n+1+i]=grant,mark or 0
end
return reply
