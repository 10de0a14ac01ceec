-- Adds units to a window if it has the given reset, as it is written there. The count is never
-- negative, and never above 2^31-1, which stays: it may stand for more. Windows are written as in
-- take.lua.
--
-- Returns the new count; -1 if the window has ended; or -2 if the take may still be counted: the
-- window now ends earlier, because the clock was set back.
local function change(k,written,units)
  local call,B,M=redis.call,2147483648,4194303
  local was=call('INCRBY',k,units)-units
  local c=was%B
  local early=(written-(was-c)/B)%M
  if was==0 and call('PTTL',k)<0 then
    call('DEL',k)
    return -1
  end
  if early~=0 then
    call('DECRBY',k,units)
    return early<M/2 and -2 or -1
  end
  local wanted=c+units
  c=c==B-1 and c or math.max(0,math.min(wanted,B-1))
  if c~=wanted then call('INCRBY',k,c-wanted) end
  return c
end
