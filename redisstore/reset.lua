-- Deletes windows, all at once, and marks when.
--
-- KEYS  the windows; then the mark of each; then, unless this is a cluster, the mark of all
-- ARGV  a time after every take of which the caller knows, in Unix milliseconds
--
-- Until its window would have ended, a mark is later than all takes before the reset: settle_marked.lua
-- must not take a later window for theirs. It is the server's clock, or a little more, so that takes
-- and resets in one millisecond have an order. The mark of all is the latest, and expires with the
-- last. The number beside it differs after each reset, also if the mark does not: by it the nodes
-- that hold units know. It begins at the clock, so that it is another one on a server that was
-- emptied. Returns each window's mark, or 0 for one that was not open.
local call,n,t,marks=redis.call,(#KEYS-#KEYS%2)/2,redis.call('TIME'),{}
local now=t[1]*1000+math.floor(t[2]/1000)
if ARGV[1]+0>now then now=ARGV[1]+0 end
local all,lasts=0,0
for i=1,n do
  local left=call('PTTL',KEYS[i])
  marks[i]=0
  if left>0 then
    marks[i]=math.max(now,(call('GET',KEYS[n+i]) or 0)+1)
    call('SET',KEYS[n+i],marks[i],'PX',left)
    all,lasts=math.max(all,marks[i]),math.max(lasts,left)
  end
  call('DEL',KEYS[i])
end
if all>0 and #KEYS>2*n then
  local k=KEYS[#KEYS]
  call('SET',k,math.max(all,(call('GET',k) or 0)+0),'PX',math.max(lasts,call('PTTL',k)))
  k=k..':number'
  call('SET',k,(tonumber(call('GET',k)) or now)+1,'EX',4194303)
end
return marks
