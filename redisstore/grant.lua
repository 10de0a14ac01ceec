-- Writes grants, all or none.
--
-- KEYS  the hash of all grants: limit and until ("50 1800000000") by the hash of a window's
--       key; and the version
-- ARGV  the mark of the secret, a new version, the maximum number of grants; then for each
--       window hash, limit and until. A limit of 0 or an until in the past removes the grant.
--
-- Removes grants that have ended or were made with another secret, and any field that is no grant.
-- The key expires with the last grant. Returns the resulting hash.
local call,K,A,V=redis.call,KEYS[1],ARGV,'version'
local now,most,mark=call('TIME')[1]+0,A[3]+0,A[1]
local all,drop,n={},{},0
if call('HLEN',K)>2*most then return redis.error_reply('ERR more grants than can be, under '..K) end
local had=call('HGETALL',K)
local ours=string.sub(call('HGET',K,V) or '',1,#mark)==mark
for i=1,#had,2 do
  local f=had[i]
  if f~=V then
    local limit,ends=string.match(had[i+1],'^([1-9]%d*) (%d+)$')
    if ours and #f==22 and limit and limit+0<2147483648 and ends+0>now and ends+0<4294967296 then
      all[f]=ends+0
      n=n+1
    else
      drop[f]=true
    end
  end
end
local put={}
for i=4,#A,3 do
  local f,ends=A[i],A[i+2]+0
  if A[i+1]~='0' and ends>now then
    if not all[f] then n=n+1 end
    all[f],put[f],drop[f]=ends,A[i+1]..' '..A[i+2],nil
  else
    if all[f] then n=n-1 end
    all[f],put[f],drop[f]=nil,nil,true
  end
end
if n>most then return redis.error_reply('ERR '..n..' grants would be in force, at most '..most..' are kept: take some back') end
for f in pairs(drop) do call('HDEL',K,f) end
if n==0 then
  call('DEL',K)
  return {}
end
local last=0
for f,ends in pairs(all) do if ends>last then last=ends end end
for f,v in pairs(put) do call('HSET',K,f,v) end
call('HSET',K,V,mark..' '..A[2])
call('EXPIREAT',K,last)
return call('HGETALL',K)
