-- Old leads are found by their age alone; sessions have sessions_by_age.
CREATE INDEX leads_by_age ON leads (created_at);
