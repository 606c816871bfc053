-- Calls that wait for a person's decision, and those that were decided. Decisions may hold for later calls of the session.
CREATE TABLE approvals (
    approval_id TEXT NOT NULL PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    run_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    tool_call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    -- As they were shown, and their digest in hexadecimal digits.
    arguments TEXT NOT NULL,
    digest TEXT NOT NULL,
    -- What a decision that holds for the same calls compares.
    scope TEXT NOT NULL,
    reason TEXT,
    -- JSON.
    rule TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- 'waiting', also after expires_at; 'approved'; 'denied'; 'expired'; 'left': the turn ended without a decision.
    state TEXT NOT NULL DEFAULT 'waiting',
    message TEXT,
    -- JSON: the arguments that the call is run with, if they are others.
    edited TEXT,
    -- For which later calls the decision holds: 'same'; 'tool'.
    remember TEXT,
    decided_at INTEGER
) STRICT;
CREATE INDEX approvals_session ON approvals (session, created_at, approval_id);
CREATE INDEX approvals_waiting ON approvals (created_at, approval_id) WHERE state = 'waiting';
