-- The plan that a token has been sold, which limits may depend on (weir.Plans.By token). Empty: none.
ALTER TABLE tokens ADD COLUMN plan TEXT NOT NULL DEFAULT '';
