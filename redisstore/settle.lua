-- Changes what takes have spent, each change in the window that its take was charged to.
--
-- KEYS  for each change the window, and the mark of its last reset by an operator
-- ARGV  for each change the reset that the take returned, the units to add, negative ones to give
--       back, and when the take was counted, in Unix milliseconds
--
-- A window is changed if it still has that reset and was not reset since. Its count is never
-- negative, and never above 2^31-1, which stays: it may stand for more.
--
-- Returns for each change the new count; -1 if the window has ended or was reset; or -2 if the
-- take may still be counted: it was counted in the millisecond of a reset, or the window now ends
-- earlier, because the clock was set back. Windows are written as in take.lua.
local call,K,A,B,M=redis.call,KEYS,ARGV,2147483648,4194303
local n,marks,out=#K/2,{},{}
for i=1,n do marks[i]=K[2*i] end
marks=call('MGET',unpack(marks))
for i=1,n do
  local k,at,mark=K[2*i-1],A[3*i]+0,marks[i]
  if mark and at<=mark+0 then
    out[i]=at<mark+0 and -1 or -2
  else
    local units=A[3*i-1]+0
    local was=call('INCRBY',k,A[3*i-1])-units
    local c=was%B
    local early=(A[3*i-2]-(was-c)/B)%M
    if was==0 and call('PTTL',k)<0 then
      call('DEL',k)
      out[i]=-1
    elseif early~=0 then
      call('DECRBY',k,A[3*i-1])
      out[i]=early<M/2 and -2 or -1
    else
      local wanted=c+units
      c=c==B-1 and c or math.max(0,math.min(wanted,B-1))
      if c~=wanted then call('INCRBY',k,c-wanted) end
      out[i]=c
    end
  end
end
return out
