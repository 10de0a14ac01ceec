-- Times are Unix milliseconds. Ids are random text and public; n orders rows and never leaves the database.

CREATE TABLE workspaces (
	id         TEXT    NOT NULL PRIMARY KEY, -- the agent_id that a widget embeds
	created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
	id           TEXT    NOT NULL PRIMARY KEY, -- the public part; what requests are counted by
	workspace_id TEXT    NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	hash         BLOB    NOT NULL CHECK (length(hash) = 32),
	created_at   INTEGER NOT NULL,
	revoked_at   INTEGER
) STRICT;
CREATE INDEX tokens_of_workspace ON tokens (workspace_id);

CREATE TABLE sessions (
	id           TEXT    NOT NULL PRIMARY KEY,
	workspace_id TEXT    NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_of_workspace ON sessions (workspace_id);
CREATE INDEX sessions_by_age ON sessions (created_at);

CREATE TABLE conversations (
	n          INTEGER PRIMARY KEY,
	id         TEXT    NOT NULL UNIQUE,
	session_id TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	created_at INTEGER NOT NULL,
	closed_at  INTEGER,
	typing     INTEGER NOT NULL DEFAULT 0, -- whether the visitor is typing
	messages   INTEGER NOT NULL DEFAULT 0, -- how many there are, and the n of the newest
	events     INTEGER NOT NULL DEFAULT 0  -- likewise
) STRICT;
CREATE INDEX conversations_of_session ON conversations (session_id, n);

CREATE TABLE messages (
	conversation INTEGER NOT NULL REFERENCES conversations (n) ON DELETE CASCADE,
	n            INTEGER NOT NULL, -- 1, 2, 3 … within the conversation
	id           TEXT    NOT NULL UNIQUE,
	author       TEXT    NOT NULL CHECK (author IN ('visitor', 'assistant')),
	text         TEXT    NOT NULL,
	sources      TEXT    NOT NULL DEFAULT '[]' CHECK (json_valid(sources)),
	created_at   INTEGER NOT NULL,
	PRIMARY KEY (conversation, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
	conversation INTEGER NOT NULL REFERENCES conversations (n) ON DELETE CASCADE,
	n            INTEGER NOT NULL, -- 1, 2, 3 … within the conversation, without a gap
	source       TEXT    NOT NULL CHECK (source IN ('visitor', 'server')),
	type         TEXT    NOT NULL,
	data         TEXT    CHECK (data IS NULL OR json_valid(data)),
	created_at   INTEGER NOT NULL,
	PRIMARY KEY (conversation, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE leads (
	id           TEXT    NOT NULL PRIMARY KEY,
	workspace_id TEXT    NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	session_id   TEXT    REFERENCES sessions (id) ON DELETE SET NULL, -- a lead outlives its session
	email        TEXT    NOT NULL,
	name         TEXT,
	phone        TEXT,
	note         TEXT,
	created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX leads_of_workspace ON leads (workspace_id, created_at);
CREATE INDEX leads_of_session ON leads (session_id);

CREATE TABLE ratings (
	id           TEXT    NOT NULL PRIMARY KEY,
	conversation INTEGER NOT NULL REFERENCES conversations (n) ON DELETE CASCADE,
	score        INTEGER NOT NULL CHECK (score BETWEEN 1 AND 5),
	comment      TEXT,
	created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX ratings_of_conversation ON ratings (conversation);

CREATE TABLE documents (
	n            INTEGER PRIMARY KEY,
	workspace_id TEXT    NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	id           TEXT    NOT NULL, -- the workspace's own
	title        TEXT    NOT NULL,
	url          TEXT    NOT NULL,
	text         TEXT    NOT NULL,
	version      INTEGER NOT NULL DEFAULT 1, -- counts the upserts that changed something
	updated_at   INTEGER NOT NULL,
	UNIQUE (workspace_id, id)
) STRICT;

CREATE TABLE coupons (
	workspace_id TEXT    NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	code         TEXT    NOT NULL, -- upper case
	percent      INTEGER CHECK (percent BETWEEN 1 AND 100),
	amount       INTEGER CHECK (amount > 0), -- minor units
	currency     TEXT,
	version      INTEGER NOT NULL DEFAULT 1,
	updated_at   INTEGER NOT NULL,
	PRIMARY KEY (workspace_id, code),
	CHECK ((percent IS NULL) <> (amount IS NULL))
) STRICT, WITHOUT ROWID;
