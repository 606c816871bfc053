-- Whether the answer is kept as long as the session of its run.
ALTER TABLE runs ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
