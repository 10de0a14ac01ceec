-- Takes slots and charges windows, all or none, at one instant of the server's clock.
--
-- KEYS  the windows; then the slots, a sorted set for each
-- ARGV  the number of sorted sets, how long a slot is held without being renewed, in milliseconds,
--       and the name of this take; then for each sorted set its limit, its cost, the number of its
--       slots that are given back first, and their names; then the arguments of take.lua for the
--       windows
--
-- The function take is take.lua. A slot is a member whose score is when it expires, by the server's
-- clock. If no slot is free, the windows are read.
--
-- Returns one integer, as take.lua, if the take is too late or in another span. Otherwise returns
-- {now in milliseconds, allowed, the reply of take.lua or {}, slots held, slots held...}.
local call,K,A=redis.call,KEYS,ARGV
local m,lasts,n=A[1]+0,A[2]+0,#KEYS-A[1]
local windows,args,at,p={},{},{},4
for i=1,n do windows[i]=K[i] end
for j=1,m do at[j],p=p,p+3+A[p+2] end
for i=p,#A do args[i-p+1]=A[i] end
local t=call('TIME')
local now=t[1]*1000+math.floor(t[2]/1000)
if (t[1]*1000+t[2]/1000-args[n+1])%4194303000<2097151500 then return t[1]*1000000+t[2] end

local out,fits={now,1,{}},1
for j=1,m do
  local k,a=K[n+j],at[j]
  local limit,cost,last=A[a]+0,A[a+1]+0,a+2+A[a+2]
  for i=a+3,last,1000 do call('ZREM',k,unpack(A,i,math.min(i+999,last))) end
  call('ZREMRANGEBYSCORE',k,'-inf',now)
  out[j+3]=call('ZCARD',k)
  if cost>0 and out[j+3]+cost>limit then
    fits=0
    -- after the clock was set back, the slots of a dead node would be held for that much longer
    for _,slot in ipairs(call('ZRANGE',k,'('..now+lasts,'+inf','BYSCORE')) do call('ZADD',k,now+lasts,slot) end
  end
end
if fits==0 then
  for i=n+2,2*n+1 do
    if not args[i] or args[i]+0>0 then args[i]='0' end
  end
end
if n>0 then
  out[3]=take(windows,args)
  if type(out[3])=='number' then return out[3] end
  if #out[3]==2*n+3 and out[3][2]==0 then fits=0 end
end
out[2]=fits
if fits==1 then
  for j=1,m do
    local k,cost=K[n+j],A[at[j]+1]+0
    for i=1,cost do call('ZADD',k,now+lasts,A[3]..':'..i) end
    if cost>0 then call('PEXPIRE',k,2*lasts) end
    out[j+3]=out[j+3]+cost
  end
end
return out
