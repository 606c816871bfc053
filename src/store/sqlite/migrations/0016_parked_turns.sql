-- The turn of a session that waits for a decision, as a value.
CREATE TABLE parked_turns (
    session INTEGER NOT NULL PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    turn TEXT NOT NULL
) STRICT;
