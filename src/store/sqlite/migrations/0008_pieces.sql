-- Long texts of messages, in pieces that one short transaction can write. In `messages` a long text is an empty one, and
-- long_bytes is the length of all long texts of the row. A search in a table without rowid reads every row that it
-- compares; long rows would slow down the searches for others. The program moves the texts that are already there.
ALTER TABLE messages ADD COLUMN long_bytes INTEGER NOT NULL DEFAULT 0;

CREATE TABLE message_pieces (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    -- 0: json, 1: view, 2: full_text, 3: sources.
    field INTEGER NOT NULL,
    part INTEGER NOT NULL,
    piece BLOB NOT NULL,
    PRIMARY KEY (session, seq, field, part),
    FOREIGN KEY (session, seq) REFERENCES messages (session, seq) ON DELETE CASCADE
) STRICT;

-- For the same reason, the pieces of answers have rowids.
CREATE TABLE answer_pieces (
    run INTEGER NOT NULL REFERENCES runs (num) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    piece BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT;
INSERT INTO answer_pieces (run, seq, piece) SELECT run, seq, piece FROM run_bodies;
DROP TABLE run_bodies;
ALTER TABLE answer_pieces RENAME TO run_bodies;
