-- Deletes windows, all at once, and marks when.
--
-- KEYS  the windows; then the mark of each
-- ARGV  a time after every take of which the caller knows, in Unix milliseconds
--
-- Until its window would have ended, a mark is later than all takes before the reset: settle.lua must
-- not take a later window for theirs. It is the server's clock, or a little more, so that takes and
-- resets in one millisecond have an order. Returns each mark, or 0 for a window that was not open.
local call,n,t,marks=redis.call,#KEYS/2,redis.call('TIME'),{}
local now=t[1]*1000+math.floor(t[2]/1000)
if ARGV[1]+0>now then now=ARGV[1]+0 end
for i=1,n do
  local left=call('PTTL',KEYS[i])
  marks[i]=0
  if left>0 then
    marks[i]=math.max(now,(call('GET',KEYS[n+i]) or 0)+1)
    call('SET',KEYS[n+i],marks[i],'PX',left)
  end
  call('DEL',KEYS[i])
end
return marks
