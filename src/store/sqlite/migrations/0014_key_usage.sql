-- An idempotency key counts for its owner as an answer with the bytes of its text.
CREATE INDEX idempotency_keys_owner ON idempotency_keys (owner, created_at);

INSERT INTO run_usage (owner, answers, bytes)
SELECT owner, count(*), sum(octet_length(key)) FROM idempotency_keys WHERE true GROUP BY owner
ON CONFLICT (owner) DO UPDATE SET answers = answers + excluded.answers, bytes = bytes + excluded.bytes;

CREATE TRIGGER key_claimed AFTER INSERT ON idempotency_keys BEGIN
    INSERT INTO run_usage (owner, answers, bytes) VALUES (NEW.owner, 1, octet_length(NEW.key))
    ON CONFLICT (owner) DO UPDATE SET answers = answers + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER key_deleted AFTER DELETE ON idempotency_keys BEGIN
    UPDATE run_usage SET answers = answers - 1, bytes = bytes - octet_length(OLD.key) WHERE owner = OLD.owner;
    DELETE FROM run_usage WHERE owner = OLD.owner AND answers <= 0;
END;
