-- Forgets windows, together.
--
-- KEYS  the windows
--
-- Answers how many were there.
return redis.call('DEL',unpack(KEYS))
