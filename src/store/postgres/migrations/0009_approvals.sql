-- Calls that wait for a person's decision, and those that were decided. Decisions may hold for later calls of the session.
CREATE TABLE approvals (
    approval_id text COLLATE "C" PRIMARY KEY,
    session bigint NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    run_id text NOT NULL,
    round bigint NOT NULL,
    tool_call_id bytea NOT NULL,
    tool bytea NOT NULL,
    -- As they were shown, and their digest in hexadecimal digits.
    arguments bytea NOT NULL,
    digest text NOT NULL,
    -- What a decision that holds for the same calls compares.
    scope bytea NOT NULL,
    reason bytea,
    -- JSON.
    rule bytea,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    -- 'waiting', also after expires_at; 'approved'; 'denied'; 'expired'; 'left': the turn ended without a decision.
    state text NOT NULL DEFAULT 'waiting',
    message bytea,
    -- JSON: the arguments that the call is run with, if they are others.
    edited bytea,
    -- For which later calls the decision holds: 'same'; 'tool'.
    remember text,
    decided_at bigint
);
CREATE INDEX approvals_session ON approvals (session, created_at, approval_id);
CREATE INDEX approvals_waiting ON approvals (created_at, approval_id) WHERE state = 'waiting';

-- As write_session_1. It also ends the turn that is kept with the session or, where p_turn is one, keeps that in its place and
-- inserts the approvals that it waits for. Nothing of that is done if the change is refused. A replacement ends the turn.
CREATE FUNCTION write_turn_9(
    p_owner text, p_session text, p_token bigint, p_replica text,
    p_created_at bigint,
    p_keep bigint, p_instructions bytea[],
    p_json bytea[], p_hidden boolean[], p_view bytea[], p_full_text bytea[], p_sources bytea[],
    p_calls bytea[], p_title_index bigint, p_title bytea, p_run text, p_origin smallint, p_metadata text,
    p_instruction_bytes bigint, p_bytes bigint,
    p_most bigint, p_room bigint,
    p_turn bytea,
    -- The columns of the approvals, and the bytes that each of them counts.
    p_ids text[], p_runs text[], p_rounds bigint[], p_tool_calls bytea[], p_tools bytea[], p_arguments bytea[],
    p_digests text[], p_scopes bytea[], p_reasons bytea[], p_rules bytea[], p_expire_at bigint[], p_sizes bigint[],
    OUT outcome text, OUT after_bytes bigint, OUT added bigint, OUT existed boolean
) LANGUAGE plpgsql AS $$
DECLARE
    v_row bigint;
    -- Bytes of the earlier turn.
    v_earlier bigint := 0;
    -- Bytes of the session with it.
    v_before bigint := 0;
    -- Bytes of the turn and of the approvals that are new.
    v_new bigint;
BEGIN
    BEGIN
        SELECT num, bytes INTO v_row, v_before FROM sessions WHERE owner = p_owner AND session_id = p_session
        FOR NO KEY UPDATE;
        DELETE FROM parked_turns WHERE session = v_row RETURNING octet_length(turn) INTO v_earlier;
        v_earlier := coalesce(v_earlier, 0);
        IF v_earlier > 0 THEN
            UPDATE sessions SET bytes = bytes - v_earlier WHERE num = v_row;
        END IF;
        SELECT coalesce(octet_length(p_turn), 0) + coalesce(sum(size), 0)::bigint INTO v_new
        FROM unnest(p_ids, p_sizes) AS q (id, size)
        WHERE NOT EXISTS (SELECT 1 FROM approvals WHERE approval_id = q.id);
        SELECT w.outcome, w.after_bytes, w.added, w.existed INTO outcome, after_bytes, added, existed
        FROM write_session_1(
            p_owner, p_session, p_token, p_replica, p_created_at, p_keep,
            p_instructions, p_json, p_hidden, p_view, p_full_text, p_sources,
            p_calls, p_title_index, p_title, p_run, p_origin, p_metadata,
            p_instruction_bytes, p_bytes + v_new,
            -- Only what makes a session larger is refused.
            CASE WHEN v_earlier > 0 THEN greatest(p_most, v_before) ELSE p_most END,
            -- The largest number is no limit.
            least(p_room, 9223372036854775807 - v_earlier) + v_earlier) AS w;
        added := greatest(added - v_earlier, 0);
        IF outcome <> 'done' THEN
            RAISE EXCEPTION 'the change is refused' USING ERRCODE = 'LW002';
        END IF;
        IF p_turn IS NULL THEN
            UPDATE approvals SET state = CASE WHEN expires_at <= micros_1() THEN 'expired' ELSE 'left' END
            WHERE session = v_row AND state = 'waiting';
            RETURN;
        END IF;
        SELECT num INTO v_row FROM sessions WHERE owner = p_owner AND session_id = p_session;
        INSERT INTO parked_turns (session, turn) VALUES (v_row, p_turn);
        INSERT INTO approvals (approval_id, session, run_id, round, tool_call_id, tool, arguments, digest, scope, reason,
                               rule, created_at, expires_at)
        SELECT q.id, v_row, q.run, q.round, q.tool_call, q.tool, q.arguments, q.digest, q.scope, q.reason, q.rule,
               micros_1(), q.expires_at
        FROM unnest(p_ids, p_runs, p_rounds, p_tool_calls, p_tools, p_arguments, p_digests, p_scopes, p_reasons, p_rules,
                    p_expire_at)
            AS q (id, run, round, tool_call, tool, arguments, digest, scope, reason, rule, expires_at)
        ON CONFLICT (approval_id) DO NOTHING;
    EXCEPTION WHEN SQLSTATE 'LW002' THEN
        -- The turn is there again, and the outcome says why.
        NULL;
    END;
END $$;
