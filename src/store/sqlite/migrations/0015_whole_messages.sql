-- A session has the rows of all its messages, with their whole texts. Until here forks shared rows and long texts were in
-- pieces. The program copies the messages from the old tables, which the end of the migration drops.
DROP TRIGGER run_hidden;
DROP INDEX runs_owner;
DROP INDEX runs_draft;
DROP INDEX runs_deleted;
DELETE FROM runs WHERE status IN ('draft', 'deleted');

CREATE TABLE whole_messages (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    -- Counts from 0 without gaps. Instructions count from -4294967296.
    seq INTEGER NOT NULL,
    json TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    view TEXT,
    full_text TEXT,
    sources TEXT,
    PRIMARY KEY (session, seq)
) STRICT;

CREATE INDEX runs_owner ON runs (owner, ended_at) WHERE status = 'ended';

-- The columns that only several processes need, so that both engines have the same ones.
ALTER TABLE runs ADD COLUMN replica TEXT NOT NULL DEFAULT '';
ALTER TABLE idempotency_keys ADD COLUMN replica TEXT NOT NULL DEFAULT '';

CREATE TRIGGER run_recorded AFTER INSERT ON runs BEGIN
    UPDATE idempotency_keys SET recorded = 1 WHERE owner = NEW.owner AND run = NEW.id AND recorded = 0;
END;

-- The name of this database for shared directories of files, and random bytes that stay the same.
CREATE TABLE store_identity (name TEXT NOT NULL, secret BLOB NOT NULL) STRICT;
INSERT INTO store_identity (name, secret) SELECT name, secret FROM file_store, store_secret LIMIT 1;
DROP TABLE file_store;
DROP TABLE store_secret;

-- Amounts of owners, and what is reserved of them until it is settled.
CREATE TABLE accounts (
    owner TEXT NOT NULL,
    account TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (owner, account)
) WITHOUT ROWID, STRICT;

CREATE TABLE reservations (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    account TEXT NOT NULL,
    amount INTEGER NOT NULL,
    replica TEXT NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX reservations_account ON reservations (account, owner);

-- From which store this database is a copy, if it is one, and whether the copy is complete.
CREATE TABLE store_copy (name TEXT NOT NULL, state TEXT NOT NULL, finished INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TRIGGER run_copied AFTER INSERT ON runs WHEN NEW.status = 'ended' BEGIN
    INSERT INTO run_usage (owner, answers, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET answers = answers + 1, bytes = bytes + excluded.bytes;
END;
