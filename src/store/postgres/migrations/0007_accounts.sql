-- Whatever records a run marks the idempotency keys that it has.
CREATE FUNCTION run_recorded_7() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE idempotency_keys SET recorded = true WHERE owner = NEW.owner AND run = NEW.id AND NOT recorded;
    RETURN NULL;
END $$;
CREATE TRIGGER run_recorded AFTER INSERT ON runs FOR EACH ROW EXECUTE FUNCTION run_recorded_7();

-- What each owner has.
CREATE VIEW session_usage AS
    SELECT owner, count(*) AS sessions, sum(bytes)::bigint AS bytes FROM sessions GROUP BY owner;
-- An idempotency key counts as an answer with the bytes of its text.
CREATE VIEW run_usage AS
    SELECT owner, count(*) AS answers, sum(bytes)::bigint AS bytes FROM (
        SELECT owner, bytes FROM runs WHERE status = 'ended'
        UNION ALL SELECT owner, octet_length(key) FROM idempotency_keys) parts
    GROUP BY owner;

-- Amounts of owners, and what is reserved of them until it is settled.
CREATE TABLE accounts (
    owner text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (owner, account)
);
CREATE TABLE reservations (
    id text PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    replica text NOT NULL
);
CREATE INDEX reservations_account ON reservations (account, owner);

-- From which store this database is a copy, if it is one, and whether the copy is complete.
CREATE TABLE IF NOT EXISTS store_copy (
    name text NOT NULL, state text NOT NULL, finished boolean NOT NULL DEFAULT false);
