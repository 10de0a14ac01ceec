-- Deletes windows, all at once.
--
-- KEYS  the windows
--
-- Returns how many existed.
return redis.call('DEL',unpack(KEYS))
