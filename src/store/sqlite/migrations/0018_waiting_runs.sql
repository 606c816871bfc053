-- The run that goes on with a turn by itself: a member "run" at the beginning of the turn.
ALTER TABLE parked_turns ADD COLUMN run_id TEXT GENERATED ALWAYS AS (
    CASE WHEN substr(turn, 1, 8) = '{"run":"' THEN substr(turn, 9, instr(substr(turn, 9, 100), '"') - 1) END
) VIRTUAL;
CREATE INDEX parked_turns_run ON parked_turns (run_id) WHERE run_id IS NOT NULL;

-- What a webhook has been told of a call that waits: NULL: nothing; 'requested'; 'over': that it is decided or has expired.
ALTER TABLE approvals ADD COLUMN announced TEXT;
CREATE INDEX approvals_untold ON approvals (created_at) WHERE announced IS NULL;
CREATE INDEX approvals_told ON approvals (created_at) WHERE announced = 'requested';
