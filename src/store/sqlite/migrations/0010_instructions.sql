-- Instructions are rows of `messages`, from seq -4294967296 without gaps; the first message has the seq 0. Long ones have
-- pieces, as messages have. In `shared_messages` those of a trunk have such numbers too, in place of a first_seq of -1.
-- The program moves the instructions that are already there, and drops their column.
ALTER TABLE sessions ADD COLUMN instruction_bytes INTEGER NOT NULL DEFAULT 0;
-- Whether the instructions are in a trunk, all of them.
ALTER TABLE sessions ADD COLUMN shared_instructions INTEGER NOT NULL DEFAULT 0;
