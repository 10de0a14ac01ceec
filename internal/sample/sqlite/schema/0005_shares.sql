-- The storage that visitors use, so that each holder is limited to a share. shares.go has the rules, visit.go the accounts.
--
-- bytes are charges: the size of a row in the file, rounded up. Deleting a session or a lead releases its charges.

-- Where sessions were started: a client's address, or its IPv6 network. A row is deleted with the last of its bytes.
CREATE TABLE origins (
	n       INTEGER PRIMARY KEY,
	hash    BLOB    NOT NULL UNIQUE CHECK (length(hash) = 16), -- keyed; the address itself is not stored
	network INTEGER,                                            -- the origin that contains this one; NULL: none
	bytes   INTEGER NOT NULL DEFAULT 0
) STRICT;

ALTER TABLE workspaces ADD COLUMN bytes      INTEGER NOT NULL DEFAULT 0; -- of its visitors
ALTER TABLE sessions   ADD COLUMN bytes      INTEGER NOT NULL DEFAULT 0; -- without its leads
ALTER TABLE sessions   ADD COLUMN lead_bytes INTEGER NOT NULL DEFAULT 0; -- its leads, which can outlive it
ALTER TABLE sessions   ADD COLUMN origin     INTEGER;                    -- NULL: unknown
ALTER TABLE leads      ADD COLUMN bytes      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leads      ADD COLUMN origin     INTEGER;

CREATE TRIGGER sessions_give_back AFTER DELETE ON sessions BEGIN
	UPDATE workspaces SET bytes = bytes - old.bytes WHERE id = old.workspace_id;
	UPDATE origins SET bytes = bytes - old.bytes WHERE n IN (old.origin, (SELECT network FROM origins WHERE n = old.origin));
	DELETE FROM origins WHERE bytes <= 0 AND n IN (old.origin, (SELECT network FROM origins WHERE n = old.origin));
END;

CREATE TRIGGER leads_give_back AFTER DELETE ON leads BEGIN
	UPDATE sessions SET lead_bytes = lead_bytes - old.bytes WHERE id = old.session_id;
	UPDATE workspaces SET bytes = bytes - old.bytes WHERE id = old.workspace_id;
	UPDATE origins SET bytes = bytes - old.bytes WHERE n IN (old.origin, (SELECT network FROM origins WHERE n = old.origin));
	DELETE FROM origins WHERE bytes <= 0 AND n IN (old.origin, (SELECT network FROM origins WHERE n = old.origin));
END;

CREATE TRIGGER leads_outlive AFTER UPDATE OF session_id ON leads WHEN new.session_id IS NOT old.session_id BEGIN
	UPDATE sessions SET lead_bytes = lead_bytes - old.bytes WHERE id = old.session_id;
END;

-- Existing rows are charged too, with one and a half times their content. The origin of existing sessions is unknown.
UPDATE leads SET bytes = 384 + (octet_length(email) + coalesce(octet_length(name), 0) + coalesce(octet_length(phone), 0) + coalesce(octet_length(note), 0)) * 3 / 2;
UPDATE sessions SET
	lead_bytes = (SELECT coalesce(sum(bytes), 0) FROM leads WHERE session_id = sessions.id),
	bytes = 640
		+ coalesce((
			SELECT sum(320
				+ (SELECT coalesce(sum(256 + (octet_length(text) + octet_length(sources)) * 3 / 2), 0) FROM messages WHERE conversation = c.n)
				+ (SELECT coalesce(sum(96 + (octet_length(type) + coalesce(octet_length(data), 0)) * 3 / 2), 0) FROM events WHERE conversation = c.n)
				+ (SELECT coalesce(sum(256 + coalesce(octet_length(comment), 0) * 3 / 2), 0) FROM ratings WHERE conversation = c.n))
			FROM conversations c WHERE c.session_id = sessions.id), 0)
		+ (SELECT count(*) * 96 FROM redemptions WHERE session_id = sessions.id);
UPDATE workspaces SET bytes =
	(SELECT coalesce(sum(bytes), 0) FROM sessions WHERE workspace_id = workspaces.id) +
	(SELECT coalesce(sum(bytes), 0) FROM leads WHERE workspace_id = workspaces.id);

-- A session's charges also count for its workspace and its origin.
CREATE TRIGGER sessions_charge AFTER UPDATE OF bytes, lead_bytes ON sessions WHEN new.bytes + new.lead_bytes > old.bytes + old.lead_bytes BEGIN
	UPDATE workspaces SET bytes = bytes + new.bytes + new.lead_bytes - old.bytes - old.lead_bytes WHERE id = new.workspace_id;
	UPDATE origins SET bytes = bytes + new.bytes + new.lead_bytes - old.bytes - old.lead_bytes
		WHERE n IN (new.origin, (SELECT network FROM origins WHERE n = new.origin));
END;

-- The number of pages in use for everything but visitors' data, including one for each of the visitors' tables and indexes.
-- Each transaction that changes the number records the difference. A change of the schema must count the pages again.
CREATE TABLE storage (other_pages INTEGER NOT NULL) STRICT;
INSERT INTO storage VALUES (0);
