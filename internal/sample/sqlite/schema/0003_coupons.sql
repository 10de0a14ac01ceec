-- What a coupon may ask for beside its code. NULL: nothing.
ALTER TABLE coupons ADD COLUMN starts_at INTEGER; -- valid from this instant on
ALTER TABLE coupons ADD COLUMN ends_at   INTEGER; -- and no more at this one
ALTER TABLE coupons ADD COLUMN minimum   INTEGER CHECK (minimum > 0); -- of the total, minor units
ALTER TABLE coupons ADD COLUMN max_uses  INTEGER CHECK (max_uses > 0);
ALTER TABLE coupons ADD COLUMN uses      INTEGER NOT NULL DEFAULT 0; -- never goes down

-- Which session holds a use of which coupon of its workspace. The count stands in coupons: a row may go with its session.
CREATE TABLE redemptions (
	session_id TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	code       TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (session_id, code)
) STRICT, WITHOUT ROWID;
