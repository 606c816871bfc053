-- The time by which things expire, in one row.
CREATE TABLE expiry_time (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    trusted INTEGER NOT NULL,
    credit INTEGER NOT NULL
) STRICT;
