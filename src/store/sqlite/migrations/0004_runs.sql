-- Records of runs: turns while they execute, and their answers afterwards. Times as for sessions.
CREATE TABLE runs (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    -- The session that the run writes. It may have been deleted.
    session_id TEXT,
    -- 'running'; 'interrupted': the process ended before the run; 'ended': there is an answer. Rows that no owner has:
    -- 'draft': an answer that is being written in pieces; 'deleted': an answer that is being deleted in pieces.
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- When the run ended, or when its interruption was found.
    ended_at INTEGER,
    http_status INTEGER,
    -- The headers of the answer, a JSON array of pairs.
    headers TEXT,
    -- Bytes of the headers and the body.
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX runs_owner ON runs (owner, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_expiry ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_running ON runs (num) WHERE status = 'running';
CREATE INDEX runs_draft ON runs (num) WHERE status = 'draft';
CREATE INDEX runs_deleted ON runs (num) WHERE status = 'deleted';

-- The bodies of answers, in pieces that one short transaction can write.
CREATE TABLE run_bodies (
    run INTEGER NOT NULL REFERENCES runs (num) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    piece BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID, STRICT;

-- The answers of each owner, so that a sum does not read every record.
CREATE TABLE run_usage (
    owner TEXT NOT NULL PRIMARY KEY,
    answers INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TRIGGER run_answered AFTER UPDATE OF status ON runs
WHEN NEW.status = 'ended' AND OLD.status <> 'ended' BEGIN
    INSERT INTO run_usage (owner, answers, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET answers = answers + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER run_hidden AFTER UPDATE OF status ON runs
WHEN OLD.status = 'ended' AND NEW.status <> 'ended' BEGIN
    UPDATE run_usage SET answers = answers - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    DELETE FROM run_usage WHERE owner = OLD.owner AND answers <= 0;
END;

CREATE TRIGGER run_deleted AFTER DELETE ON runs WHEN OLD.status = 'ended' BEGIN
    UPDATE run_usage SET answers = answers - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    DELETE FROM run_usage WHERE owner = OLD.owner AND answers <= 0;
END;

-- Which run has an idempotency key.
CREATE TABLE idempotency_keys (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    -- A hash of the request.
    fingerprint BLOB NOT NULL,
    run TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- Whether there was ever a record of the run. The key outlives the record, so that the run is not repeated.
    recorded INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID, STRICT;

CREATE INDEX idempotency_keys_run ON idempotency_keys (owner, run);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (created_at);
CREATE INDEX idempotency_keys_unrecorded ON idempotency_keys (run) WHERE recorded = 0;

-- The run that wrote a session last.
ALTER TABLE sessions ADD COLUMN last_run TEXT;
-- Whether the session was stored without an id of the client.
ALTER TABLE sessions ADD COLUMN nameless INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_nameless ON sessions (updated_at) WHERE nameless = 1;
