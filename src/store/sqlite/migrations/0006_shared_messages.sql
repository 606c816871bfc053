-- Messages that forks share. A fork of a large session moves the session's rows to a hidden session, a trunk, which both
-- refer to. The first `shared` messages of a session are rows of trunks, the others are its own.
ALTER TABLE sessions ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;

-- Which trunk has which messages of a session: those from first_seq to before end_seq, without gaps from 0 to `shared`.
-- They have the same seq in the trunk. With first_seq -1 it is the trunk that has the instructions; those of the session
-- are then an empty text.
CREATE TABLE shared_messages (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    end_seq INTEGER NOT NULL,
    trunk INTEGER NOT NULL REFERENCES sessions (id),
    PRIMARY KEY (session, first_seq)
) WITHOUT ROWID, STRICT;

CREATE INDEX shared_messages_trunk ON shared_messages (trunk, end_seq);

-- A released trunk may have messages that nothing refers to any more.
CREATE TRIGGER trunk_released AFTER DELETE ON shared_messages BEGIN
    UPDATE sessions SET session_id = 'released-' || id WHERE id = OLD.trunk AND session_id = 'trunk-' || id;
END;

CREATE TRIGGER trunk_shortened AFTER UPDATE OF end_seq ON shared_messages BEGIN
    UPDATE sessions SET session_id = 'released-' || id WHERE id = OLD.trunk AND session_id = 'trunk-' || id;
END;
