-- Charges every window or none, at one instant of the server's clock.
--
-- KEYS  one for each window
-- ARGV  for each window length * 2^31 + limit; the first millisecond that is too late; then,
--       unless every cost is 1, the costs; then, unless all are 0, the ends
--
-- A window with end 0 ends one length after its first unit. Any other end is in Unix seconds: it
-- and the length are those of the span that contains the server's time, as the caller believes.
--
-- Milliseconds are on the server's clock, modulo 1000 * M. A take is too late if that millisecond
-- has come, up to 24 days ago: its caller has given up and counted it elsewhere. A take that is too
-- late changes nothing.
--
-- A window is one integer: count + reset * 2^31. The reset is in whole Unix seconds modulo M, so
-- that the integer stays exact in Lua's doubles. INCRBY spends from it, and the key expires at its
-- reset.
--
-- If the clock was set back, a window ends earlier than its takes were told. The mark KEY:reset, in
-- the same slot, then voids their settlement, and so does the mark of all resets. The number beside
-- that tells the nodes that hold units: see reset.lua.
--
-- A cost of -1 is a gate: it spends nothing, and refuses the take if its window has no unit left.
--
-- Returns {window, PTTL of the first, further windows...} if all are open and have room, and no
-- gate has a window, for which it returns 0. That is the usual case, in two calls and one for each
-- further window. Returns one integer, the server's clock in microseconds, if the take is too late
-- or the server's time is outside of such a span: it has changed nothing. Otherwise returns {now,
-- allowed, microseconds, count, reset, count, reset...}.
local call,K,A,B,M=redis.call,KEYS,ARGV,2147483648,4194303
local S,H=4194303000,2097151500
local n,spent=#K,0

repeat
  local k,a,cost,units=K[1],A[1]+0,'1',1
  if A[n+2] then cost=A[n+2] units=cost+0 end
  if units<1 then break end
  local v,p=call('INCRBY',k,cost),call('PTTL',k)
  local c,limit,e=v%B,a%B,A[2*n+2]
  if e=='0' then e=nil end
  if p<0 and v==units then
    if n==1 and c<=limit and not e then
      local t=call('TIME')
      local now=t[1]+0
      if (now*1000+t[2]/1000-A[2])%S<H then
        call('DEL',k)
        return now*1000000+t[2]
      end
      local reset=now+(a-limit)/B
      call('SET',k,reset%M*B+c,'EXAT',reset)
      return {now,1,t[2]+0,c,reset}
    end
    call('DEL',k)
    break
  end
  spent=1
  local now,out=(v-c)/B*1000-p,nil
  local late=now-A[n+1]
  if p<1 or c>limit or c<units or p*B>(a-limit)*1000 or late>=0 or late<-H or e and (v-c)/B~=e%M then break end
  if n==1 then return {v,p} end
  for j=2,n do
    k,a=K[j],A[j]+0
    if A[n+1+j] then cost=A[n+1+j] units=cost+0 end
    if units==0 then break end
    local w=0
    if units<0 then
      if call('GET',k) then break end
    else
      w=call('INCRBY',k,cost)
      if w==units then
        call('DEL',k)
        break
      end
      spent=j
      c,limit,e=w%B,a%B,A[2*n+1+j]
      if e=='0' then e=nil end
      local left=((w-c)/B*1000-now)%S
      if c>limit or c<units or left==0 or left*B>(a-limit)*1000 or e and (w-c)/B~=e%M then break end
    end
    if j==2 then out={v,p,w} else out[j+1]=w end
    if j==n then return out end
  end
until true

-- A window ends, begins or is full, a cost is 0, the take may be too late, or the clock was set
-- back: undo what was spent, and decide by the whole arithmetic.
for j=1,spent do
  local cost=A[n+1+j] or '1'
  if cost~='-1' then call('DECRBY',K[j],cost) end
end
local t=call('TIME')
local now,fits=t[1]+0,1
if (now*1000+t[2]/1000-A[n+1])%S<H then return now*1000000+t[2] end
local counts,resets,stale,latest={},{},{},{}
for j=1,n do
  local e,per=(A[2*n+1+j] or 0)+0,(A[j]-A[j]%B)/B
  latest[j]=now+per
  if e>0 then
    if now>=e or now<e-per then return now*1000000+t[2] end
    latest[j]=e
  end
end
for j=1,n do
  local limit,cost,c,r=A[j]%B,(A[n+1+j] or 1)+0,0,0
  local last=latest[j]
  local v=call('GET',K[j])
  if v then
    local p=call('PTTL',K[j])
    c=v%B
    r=now+((v-c)/B-now)%M
    if p>(last-now)*1000 and (r>last or p>(last-now+60)*1000) then
      -- A later window may have the reset that this one loses: see settle_marked.lua. A cluster
      -- has no mark of all resets, and may reject this one.
      call('SET',K[j]..':reset',(now+1)*1000+p,'PX',p)
      local all=string.match(K[j],'^[^{]*')..'resets'
      redis.pcall('SET',all,'9007199254740991','EX',M)
      redis.pcall('SET',all..':number',(tonumber(redis.pcall('GET',all..':number')) or now*1000)+1,'EX',M)
      r=last
      stale[j]=true
    elseif r==now or r>last then
      c,r=0,0
      if p<0 then call('DEL',K[j]) end
    elseif p<0 then
      stale[j]=true
    end
  end
  if cost>0 and c+cost>limit or cost<0 and c>=limit then fits=0 end
  counts[j],resets[j]=c,r
end
local out={now,fits,t[2]+0}
for j=1,n do
  local cost,c,r=(A[n+1+j] or 1)+0,counts[j],resets[j]
  if fits==1 and cost>0 then
    if r==0 then r=latest[j] end
    c=c+cost
    stale[j]=true
  end
  if stale[j] then call('SET',K[j],r%M*B+c,'EXAT',r) end
  out[2*j+2],out[2*j+3]=c,r
end
return out
