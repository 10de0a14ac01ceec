-- Changes what takes have spent, each change in the window that its take was charged to, unless an
-- operator has reset that since.
--
-- KEYS  for each change the window, and the mark of its last reset by an operator; then, unless
--       this is a cluster, the server's marker
-- ARGV  for each change the reset of its window as it is written there, the units to add, negative
--       ones to give back, and when its take was counted, in Unix milliseconds; then the marker as
--       it was when the takes were counted, and how many keys the server had evicted by then, or ''
--
-- The function change is settle_change.lua. Returns for each change what it returns; -1 if the
-- window was reset since; or -2 if the take was counted in the millisecond of a reset. Returns -1
-- alone if the server has lost counts since: it has changed nothing.
local call,K,A=redis.call,KEYS,ARGV
local n,marks,out=(#K-#K%2)/2,{},{}
if #K>2*n then
  if call('GET',K[#K])~=A[3*n+1] then return -1 end
  if A[3*n+2]~='' and string.match(call('INFO','stats'),'evicted_keys:(%d+)')~=A[3*n+2] then return -1 end
end
for i=1,n do marks[i]=K[2*i] end
marks=call('MGET',unpack(marks))
for i=1,n do
  local at,mark=A[3*i]+0,marks[i]
  if mark and at<=mark+0 then
    out[i]=at<mark+0 and -1 or -2
  else
    out[i]=change(K[2*i-1],A[3*i-2],A[3*i-1])
  end
end
return out
