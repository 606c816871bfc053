-- Random bytes that stay the same, from which ids are derived that nobody else may compute.
CREATE TABLE store_secret (secret BLOB NOT NULL) STRICT;
INSERT INTO store_secret (secret) VALUES (randomblob(32));

-- From here on `nameless` is 2 for the session of a chat of a front end. Its id was made here, too, so that it can be
-- deleted to make space, but it does not expire sooner.
CREATE INDEX sessions_evictable ON sessions (owner, updated_at) WHERE nameless > 0;
