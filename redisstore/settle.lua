-- Changes what takes have spent, each change in the window that its take was charged to.
--
-- KEYS  the server's marker; when the last window was reset by an operator; then the windows
-- ARGV  the marker as it was when the takes were counted; how many keys the server had evicted by
--       then, or '' if it evicts none; the earliest of the takes, in Unix milliseconds; then for
--       each window its reset as it is written there, and the units to add, negative ones to give
--       back
--
-- Returns 0 if a take may be from before an operator's reset: settle_marked.lua finds out. Returns
-- -1 if the server has lost counts since. It has changed nothing then. Otherwise returns for each
-- change what settle_marked.lua does.
--
-- The function change is settle_change.lua. In the usual case a change is one call.
local call,K,A,B=redis.call,KEYS,ARGV,2147483648
local marks=call('MGET',K[1],K[2])
if marks[1]~=A[1] or A[2]~='' and string.match(call('INFO','stats'),'evicted_keys:(%d+)')~=A[2] then return -1 end
if marks[2] and A[3]+0<=marks[2]+0 then return 0 end
local out={}
for i=3,#K do
  local k,written,units=K[i],A[2*i-2],A[2*i-1]
  local v=call('INCRBY',k,units)
  local c=v%B
  local was=c-units
  if was<1 or was>B-2 or (v-c)/B~=written+0 then
    call('DECRBY',k,units)
    c=change(k,written,units)
  end
  out[i-2]=c
end
return out
