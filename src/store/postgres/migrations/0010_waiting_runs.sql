-- The run that goes on with a turn by itself: a member "run" at the beginning of the turn.
ALTER TABLE parked_turns ADD COLUMN run_id text COLLATE "C" GENERATED ALWAYS AS (
    CASE WHEN substring(turn FROM 1 FOR 8) = '\x7b2272756e223a22'::bytea
        THEN encode(substring(turn FROM 9 FOR greatest(position('\x22'::bytea IN substring(turn FROM 9 FOR 100)) - 1, 0)), 'escape') END
) STORED;
CREATE INDEX parked_turns_run ON parked_turns (run_id) WHERE run_id IS NOT NULL;

-- What a webhook has been told of a call that waits: NULL: nothing; 'requested'; 'over': that it is decided or has expired.
ALTER TABLE approvals ADD COLUMN announced text;
CREATE INDEX approvals_untold ON approvals (created_at) WHERE announced IS NULL;
CREATE INDEX approvals_told ON approvals (created_at) WHERE announced = 'requested';
