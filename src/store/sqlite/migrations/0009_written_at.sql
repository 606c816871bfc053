-- The exact time of the last write, if it is later than `updated_at`. The writes of a run change `updated_at`, which has
-- indexes, now and then only.
ALTER TABLE sessions ADD COLUMN written_at INTEGER NOT NULL DEFAULT 0;
