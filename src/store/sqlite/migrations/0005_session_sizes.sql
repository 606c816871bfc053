-- The bytes of a session: its instructions (2 for none) and its messages with all that belongs to them.
ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 2;
UPDATE sessions SET bytes = octet_length(instructions) + coalesce(
    (SELECT sum(octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
                + coalesce(octet_length(sources), 0))
     FROM messages WHERE session = sessions.id), 0);

-- What each owner has, so that a sum does not read every session there is.
CREATE TABLE session_usage (
    owner TEXT NOT NULL PRIMARY KEY,
    sessions INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
INSERT INTO session_usage (owner, sessions, bytes) SELECT owner, count(*), sum(bytes) FROM sessions GROUP BY owner;

CREATE TRIGGER session_added AFTER INSERT ON sessions BEGIN
    INSERT INTO session_usage (owner, sessions, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET sessions = sessions + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER session_resized AFTER UPDATE OF bytes ON sessions
WHEN NEW.owner = OLD.owner AND NEW.bytes <> OLD.bytes BEGIN
    UPDATE session_usage SET bytes = bytes + NEW.bytes - OLD.bytes WHERE owner = NEW.owner;
END;

CREATE TRIGGER session_moved AFTER UPDATE OF owner ON sessions WHEN NEW.owner <> OLD.owner BEGIN
    INSERT INTO session_usage (owner, sessions, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET sessions = sessions + 1, bytes = bytes + excluded.bytes;
    UPDATE session_usage SET sessions = sessions - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    DELETE FROM session_usage WHERE owner = OLD.owner AND sessions <= 0;
END;

CREATE TRIGGER session_removed AFTER DELETE ON sessions BEGIN
    UPDATE session_usage SET sessions = sessions - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    DELETE FROM session_usage WHERE owner = OLD.owner AND sessions <= 0;
END;
