-- Old leads are found by their age; sessions have the index sessions_by_age.
CREATE INDEX leads_by_age ON leads (created_at);
