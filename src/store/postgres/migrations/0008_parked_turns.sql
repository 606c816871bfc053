-- The turn of a session that waits for a decision, as a value.
CREATE TABLE parked_turns (
    session bigint PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    turn bytea NOT NULL
);

-- As write_session_1. It also ends the turn that is kept with the session, unless the change is refused.
CREATE FUNCTION write_ending_turn_1(
    p_owner text, p_session text, p_token bigint, p_replica text,
    p_created_at bigint,
    p_keep bigint, p_instructions bytea[],
    p_json bytea[], p_hidden boolean[], p_view bytea[], p_full_text bytea[], p_sources bytea[],
    p_calls bytea[], p_title_index bigint, p_title bytea, p_run text, p_origin smallint, p_metadata text,
    p_instruction_bytes bigint, p_bytes bigint,
    p_most bigint, p_room bigint,
    OUT outcome text, OUT after_bytes bigint, OUT added bigint, OUT existed boolean
) LANGUAGE plpgsql AS $$
DECLARE
    v_turn bigint := 0;
    -- Bytes of the session with the turn.
    v_before bigint := 0;
BEGIN
    BEGIN
        DELETE FROM parked_turns
        WHERE session = (SELECT num FROM sessions WHERE owner = p_owner AND session_id = p_session)
        RETURNING octet_length(turn) INTO v_turn;
        v_turn := coalesce(v_turn, 0);
        IF v_turn > 0 THEN
            UPDATE sessions SET bytes = bytes - v_turn WHERE owner = p_owner AND session_id = p_session
            RETURNING bytes + v_turn INTO v_before;
        END IF;
        SELECT w.outcome, w.after_bytes, w.added, w.existed INTO outcome, after_bytes, added, existed
        FROM write_session_1(
            p_owner, p_session, p_token, p_replica, p_created_at, p_keep,
            p_instructions, p_json, p_hidden, p_view, p_full_text, p_sources,
            p_calls, p_title_index, p_title, p_run, p_origin, p_metadata,
            p_instruction_bytes, p_bytes, greatest(p_most, v_before),
            -- The largest number is no limit.
            least(p_room, 9223372036854775807 - v_turn) + v_turn) AS w;
        added := greatest(added - v_turn, 0);
        IF outcome <> 'done' THEN
            RAISE EXCEPTION 'the change is refused' USING ERRCODE = 'LW002';
        END IF;
    EXCEPTION WHEN SQLSTATE 'LW002' THEN
        -- The turn is there again, and the outcome says why.
        NULL;
    END;
END $$;
