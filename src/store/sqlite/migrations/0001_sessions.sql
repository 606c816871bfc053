-- Times are microseconds since 1970, made so that no two writes of one process share one: they are the list's order.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    -- The leading system and developer messages, a JSON array.
    instructions TEXT NOT NULL DEFAULT '[]',
    instruction_count INTEGER NOT NULL DEFAULT 0,
    -- Instructions and messages; the difference to instruction_count is the next seq.
    message_count INTEGER NOT NULL DEFAULT 0,
    -- Where the first user message stands, so that a change knows whether the title still holds without reading history.
    title_seq INTEGER,
    title TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (owner, session_id)
) STRICT;

CREATE INDEX sessions_list ON sessions (owner, updated_at DESC, id DESC);
CREATE INDEX sessions_expiry ON sessions (updated_at);

-- seq counts from 0 without holes.
CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    json TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    view TEXT,
    full_text TEXT,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID, STRICT;

CREATE TABLE client_calls (
    owner TEXT NOT NULL,
    call_id TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    PRIMARY KEY (owner, call_id)
) WITHOUT ROWID, STRICT;

-- Without it the deletion of a session reads every call there is.
CREATE INDEX client_calls_session ON client_calls (session);
