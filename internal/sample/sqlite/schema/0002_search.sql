-- The search index that answers come from, and the visitors' feedback. index.go and search.go explain the design.

-- The terms of every workspace's documents, each with its workspace's number before it: "12_term". Rowids are documents.n.
-- The table does not hold the text again. Terms arrive split and folded, so a token is the text between two spaces:
-- for the tokenizer named ascii, every character beyond ASCII is part of a token.
CREATE VIRTUAL TABLE search USING fts5 (
	title, text, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_'"
);
INSERT INTO search (search, rank) VALUES ('hashsize', 8388608); -- bytes: a request's documents make one segment, not three

CREATE TABLE search_version (version INTEGER NOT NULL) STRICT; -- of package terms, one row; 0: nothing is indexed yet
INSERT INTO search_version VALUES (0);

CREATE TABLE search_workspaces (
	n            INTEGER PRIMARY KEY AUTOINCREMENT, -- never given to another workspace
	workspace_id TEXT    NOT NULL UNIQUE REFERENCES workspaces (id) ON DELETE CASCADE,
	documents    INTEGER NOT NULL DEFAULT 0 -- number of indexed documents
) STRICT;

CREATE TABLE search_terms (
	workspace INTEGER NOT NULL REFERENCES search_workspaces (n) ON DELETE CASCADE,
	term      TEXT    NOT NULL,
	documents INTEGER NOT NULL, -- number of documents with the term
	PRIMARY KEY (workspace, term)
) STRICT, WITHOUT ROWID;

CREATE TABLE search_pending (document INTEGER PRIMARY KEY REFERENCES documents (n) ON DELETE CASCADE) STRICT; -- not indexed yet

ALTER TABLE messages ADD COLUMN helpful INTEGER CHECK (helpful IN (0, 1)); -- an answer's feedback; NULL: none
