-- Conditions of a coupon. NULL: no condition.
ALTER TABLE coupons ADD COLUMN starts_at INTEGER; -- valid from this time on
ALTER TABLE coupons ADD COLUMN ends_at   INTEGER; -- no longer valid at this time
ALTER TABLE coupons ADD COLUMN minimum   INTEGER CHECK (minimum > 0); -- of the total, minor units
ALTER TABLE coupons ADD COLUMN max_uses  INTEGER CHECK (max_uses > 0);
ALTER TABLE coupons ADD COLUMN uses      INTEGER NOT NULL DEFAULT 0; -- never goes down

-- The coupons that a session has used. The number of uses is in coupons, because these rows are deleted with their session.
CREATE TABLE redemptions (
	session_id TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	code       TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (session_id, code)
) STRICT, WITHOUT ROWID;
