-- Times are microseconds since 1970 by the clock of the database. What clients may choose freely is BYTEA, because TEXT
-- cannot hold NUL.
--
-- Functions make a change one round trip. The number at the end of a name is that of the migration which created the
-- function: a later version is a function of its own, so that programs of both versions can run at once.

CREATE FUNCTION micros_1() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Processes that use this database. A process whose row has expired has lost its leases and broken off its runs.
CREATE TABLE replicas (
    id text PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

-- Numbers of leases, which only increase.
CREATE SEQUENCE lease_tokens;

-- Who may write to a session.
CREATE TABLE leases (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    replica text NOT NULL,
    -- Another process waits for it.
    wanted boolean NOT NULL DEFAULT false,
    PRIMARY KEY (owner, session_id)
);

CREATE TABLE sessions (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    instruction_count bigint NOT NULL DEFAULT 0,
    instruction_bytes bigint NOT NULL DEFAULT 0,
    -- Instructions and messages; the difference to instruction_count is the next seq.
    message_count bigint NOT NULL DEFAULT 0,
    -- Bytes of instructions, messages and metadata.
    bytes bigint NOT NULL DEFAULT 0,
    -- The message that gives the title.
    title_seq bigint,
    title bytea,
    created_at bigint NOT NULL,
    -- Has indexes, so the writes of a run change it now and then only. written_at is exact if it is later.
    updated_at bigint NOT NULL,
    written_at bigint NOT NULL DEFAULT 0,
    last_run text,
    -- Who chose the id: 0 the client; 1 this program, for a request that named no session; 2 this program, for a chat.
    origin smallint NOT NULL DEFAULT 0,
    metadata text,
    UNIQUE (owner, session_id)
);

CREATE INDEX sessions_list ON sessions (owner, updated_at DESC, num DESC);
CREATE INDEX sessions_expiry ON sessions (updated_at);
CREATE INDEX sessions_evictable ON sessions (owner, updated_at) WHERE origin > 0;

-- seq counts from 0 without gaps. Instructions count from -4294967296.
CREATE TABLE messages (
    session bigint NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    seq bigint NOT NULL,
    json bytea NOT NULL,
    hidden boolean NOT NULL,
    view bytea,
    full_text bytea,
    sources bytea,
    PRIMARY KEY (session, seq)
);

CREATE TABLE client_calls (
    owner text COLLATE "C" NOT NULL,
    call_id bytea NOT NULL,
    session bigint NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    PRIMARY KEY (owner, call_id)
);
CREATE INDEX client_calls_session ON client_calls (session);

-- Files; their contents are elsewhere, under the name in `blob`.
CREATE TABLE files (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL,
    -- Made for a session: deleted with the last session that uses it.
    bound boolean NOT NULL,
    name bytea NOT NULL,
    mime_type bytea NOT NULL,
    bytes bigint NOT NULL,
    purpose text NOT NULL,
    tool bytea,
    round bigint,
    created_at bigint NOT NULL,
    last_used_at bigint NOT NULL,
    blob text COLLATE "C" NOT NULL UNIQUE
);
CREATE INDEX files_list ON files (owner, created_at DESC, num DESC);
CREATE INDEX files_use ON files (last_used_at);

CREATE TABLE session_files (
    session bigint NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    file bigint NOT NULL REFERENCES files (num) ON DELETE CASCADE,
    PRIMARY KEY (session, file)
);
CREATE INDEX session_files_file ON session_files (file);

-- Contents that no row refers to and that are not removed yet.
CREATE TABLE dead_blobs (blob text COLLATE "C" PRIMARY KEY);

CREATE TABLE file_usage (
    owner text COLLATE "C" PRIMARY KEY,
    files bigint NOT NULL,
    bytes bigint NOT NULL
);

CREATE FUNCTION file_added_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO file_usage (owner, files, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET files = file_usage.files + 1, bytes = file_usage.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER file_added AFTER INSERT ON files FOR EACH ROW EXECUTE FUNCTION file_added_1();

CREATE FUNCTION file_deleted_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_blobs (blob) VALUES (OLD.blob) ON CONFLICT DO NOTHING;
    UPDATE file_usage SET files = files - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    RETURN NULL;
END $$;
CREATE TRIGGER file_deleted AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION file_deleted_1();

CREATE FUNCTION session_left_file_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM files WHERE num = OLD.file AND bound
        AND NOT EXISTS (SELECT 1 FROM session_files WHERE file = OLD.file);
    RETURN NULL;
END $$;
CREATE TRIGGER session_left_file AFTER DELETE ON session_files FOR EACH ROW EXECUTE FUNCTION session_left_file_1();

-- Records of runs, and their answers.
CREATE TABLE runs (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C",
    -- 'running'; 'interrupted': the process ended before the run; 'ended': there is an answer.
    status text NOT NULL,
    -- The process of a running run.
    replica text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    http_status integer,
    headers bytea,
    -- Bytes of the headers and the body.
    bytes bigint NOT NULL DEFAULT 0,
    -- The answer is kept as long as the session.
    kept boolean NOT NULL DEFAULT false
);
CREATE INDEX runs_owner ON runs (owner, ended_at) WHERE status = 'ended';
CREATE INDEX runs_expiry ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_running ON runs (replica) WHERE status = 'running';

CREATE TABLE run_bodies (
    run bigint NOT NULL REFERENCES runs (num) ON DELETE CASCADE,
    seq bigint NOT NULL,
    piece bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE TABLE idempotency_keys (
    owner text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    fingerprint bytea NOT NULL,
    run text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    -- Whether there was ever a record of the run. The key outlives the record.
    recorded boolean NOT NULL,
    -- The process that claimed it.
    replica text NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX idempotency_keys_run ON idempotency_keys (owner, run);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (created_at);
CREATE INDEX idempotency_keys_unrecorded ON idempotency_keys (replica) WHERE NOT recorded;

-- The name of this database for shared directories of files, and random bytes that stay the same.
CREATE TABLE store_identity (name text NOT NULL, secret bytea NOT NULL);
INSERT INTO store_identity (name, secret) SELECT
    left(replace(gen_random_uuid()::text, '-', ''), 16),
    decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

-- Whether the process has renewed its row in time.
CREATE FUNCTION is_alive_1(p_replica text) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT EXISTS (SELECT 1 FROM replicas WHERE id = p_replica AND expires_at > now()) $$;

-- Whether the lease is held. It cannot pass to another holder before the transaction ends.
CREATE FUNCTION holds_lease_1(p_owner text, p_session text, p_token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM leases l
    WHERE l.owner = p_owner AND l.session_id = p_session AND l.token = p_token AND is_alive_1(l.replica)
    FOR SHARE OF l;
    RETURN FOUND;
END $$;

-- Records a run as running.
CREATE FUNCTION begin_run_1(p_owner text, p_run text, p_session text, p_replica text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs (id, owner, session_id, status, replica, created_at)
    VALUES (p_run, p_owner, p_session, 'running', p_replica, micros_1())
    ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
        UPDATE idempotency_keys SET recorded = true WHERE owner = p_owner AND run = p_run AND NOT recorded;
        RETURN;
    END IF;
    PERFORM 1 FROM runs WHERE id = p_run AND owner = p_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the run belongs to another owner' USING ERRCODE = 'LW001';
    END IF;
    UPDATE runs SET
        session_id = coalesce(p_session, session_id),
        replica = CASE status WHEN 'ended' THEN replica ELSE p_replica END,
        ended_at = CASE status WHEN 'interrupted' THEN NULL ELSE ended_at END,
        status = CASE status WHEN 'interrupted' THEN 'running' ELSE status END
    WHERE id = p_run AND (status = 'interrupted' OR (p_session IS NOT NULL AND session_id IS DISTINCT FROM p_session));
END $$;

-- Changes or replaces a session. The outcome is 'done', or says why nothing was changed: 'lost', 'too_large', 'full'.
CREATE FUNCTION write_session_1(
    p_owner text, p_session text, p_token bigint, p_replica text,
    -- NULL: a change. Else a replacement with this time of creation, 0 for now.
    p_created_at bigint,
    p_keep bigint, p_instructions bytea[],
    p_json bytea[], p_hidden boolean[], p_view bytea[], p_full_text bytea[], p_sources bytea[],
    p_calls bytea[], p_title_index bigint, p_title bytea, p_run text, p_origin smallint, p_metadata text,
    -- Bytes of the new instructions and messages.
    p_instruction_bytes bigint, p_bytes bigint,
    -- Most bytes of the session, and most bytes that may be added.
    p_most bigint, p_room bigint,
    OUT outcome text, OUT after_bytes bigint, OUT added bigint, OUT existed boolean
) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := micros_1();
    v_head sessions%ROWTYPE;
    v_import boolean := p_created_at IS NOT NULL;
    v_stored bigint := 0;
    v_kept bigint := 0;
    v_removed bigint := 0;
    v_stays boolean;
    v_row bigint;
BEGIN
    IF NOT holds_lease_1(p_owner, p_session, p_token) THEN
        outcome := 'lost';
        RETURN;
    END IF;
    SELECT * INTO v_head FROM sessions WHERE owner = p_owner AND session_id = p_session FOR NO KEY UPDATE;
    existed := FOUND;
    IF existed THEN
        v_stored := v_head.message_count - v_head.instruction_count;
        v_kept := CASE WHEN v_import THEN 0 ELSE least(v_stored, p_keep) END;
        IF v_kept < v_stored THEN
            SELECT coalesce(sum(octet_length(json) + coalesce(octet_length(view), 0)
                + coalesce(octet_length(full_text), 0) + coalesce(octet_length(sources), 0)), 0)
            INTO v_removed FROM messages WHERE session = v_head.num AND seq >= v_kept;
        END IF;
    ELSE
        v_head.bytes := 0;
        v_head.instruction_bytes := 0;
        v_head.instruction_count := 0;
    END IF;
    after_bytes := v_head.bytes - v_removed + p_bytes;
    IF v_import OR p_instructions IS NOT NULL THEN
        after_bytes := after_bytes - v_head.instruction_bytes + p_instruction_bytes;
    END IF;
    -- A change without metadata leaves them as they are.
    IF v_import OR p_metadata IS NOT NULL THEN
        after_bytes := after_bytes - coalesce(octet_length(v_head.metadata), 0) + coalesce(octet_length(p_metadata), 0);
    END IF;
    added := greatest(after_bytes - v_head.bytes, 0);
    IF added > 0 AND after_bytes > p_most THEN
        outcome := 'too_large';
        RETURN;
    END IF;
    IF added > p_room THEN
        outcome := 'full';
        RETURN;
    END IF;
    IF NOT existed THEN
        INSERT INTO sessions (owner, session_id, instruction_count, instruction_bytes, message_count, bytes, title_seq,
                              title, created_at, updated_at, last_run, origin, metadata)
        VALUES (p_owner, p_session, coalesce(cardinality(p_instructions), 0), p_instruction_bytes,
                coalesce(cardinality(p_instructions), 0) + cardinality(p_json), after_bytes, p_title_index, p_title,
                coalesce(nullif(p_created_at, 0), v_now), v_now, p_run, p_origin, p_metadata)
        RETURNING num INTO v_row;
    ELSE
        v_row := v_head.num;
        IF v_kept < v_stored THEN
            DELETE FROM messages WHERE session = v_row AND seq >= v_kept;
        END IF;
        IF v_import OR p_instructions IS NOT NULL THEN
            IF v_head.instruction_count > 0 THEN
                DELETE FROM messages WHERE session = v_row AND seq < 0;
            END IF;
            v_head.instruction_count := coalesce(cardinality(p_instructions), 0);
            v_head.instruction_bytes := p_instruction_bytes;
        END IF;
        IF v_import THEN
            DELETE FROM client_calls WHERE session = v_row;
            v_head.created_at := coalesce(nullif(p_created_at, 0), v_now);
            v_head.last_run := p_run;
            v_head.origin := p_origin;
            v_head.metadata := p_metadata;
        END IF;
        v_stays := NOT v_import AND v_head.title_seq IS NOT NULL AND v_head.title_seq < v_kept;
        -- A later write of a run leaves the indexed time as it is for ten seconds.
        IF v_import OR p_run IS NOT NULL OR v_head.last_run IS NULL OR v_now - v_head.updated_at >= 10000000 THEN
            v_head.updated_at := v_now;
        END IF;
        UPDATE sessions SET
            instruction_count = v_head.instruction_count,
            instruction_bytes = v_head.instruction_bytes,
            message_count = v_head.instruction_count + v_kept + cardinality(p_json),
            bytes = after_bytes,
            title_seq = CASE WHEN v_stays THEN title_seq ELSE v_kept + p_title_index END,
            title = CASE WHEN v_stays THEN title ELSE p_title END,
            created_at = v_head.created_at,
            updated_at = v_head.updated_at,
            written_at = v_now,
            last_run = coalesce(p_run, v_head.last_run),
            origin = v_head.origin,
            metadata = coalesce(p_metadata, v_head.metadata)
        WHERE num = v_row;
    END IF;
    IF cardinality(p_instructions) > 0 THEN
        INSERT INTO messages (session, seq, json, hidden)
        SELECT v_row, i.n - 1 - 4294967296, i.json, false
        FROM unnest(p_instructions) WITH ORDINALITY AS i (json, n);
    END IF;
    IF cardinality(p_json) > 0 THEN
        INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
        SELECT v_row, v_kept + m.n - 1, m.json, m.hidden, m.view, m.full_text, m.sources
        FROM unnest(p_json, p_hidden, p_view, p_full_text, p_sources)
            WITH ORDINALITY AS m (json, hidden, view, full_text, sources, n);
    END IF;
    IF cardinality(p_calls) > 0 THEN
        INSERT INTO client_calls (owner, call_id, session) SELECT DISTINCT p_owner, c, v_row FROM unnest(p_calls) AS c
        ON CONFLICT (owner, call_id) DO UPDATE SET session = excluded.session;
    END IF;
    IF p_run IS NOT NULL THEN
        PERFORM begin_run_1(p_owner, p_run, p_session, p_replica);
    END IF;
    outcome := 'done';
END $$;

-- Copies the messages of a session before an index. The outcome is 'done', or says why nothing was changed: 'lost',
-- 'not_found', 'exists', 'past_end', 'too_large', 'full'.
CREATE FUNCTION fork_session_1(
    p_owner text, p_source text, p_token bigint, p_before bigint, p_new text, p_most bigint, p_room bigint,
    -- For 'past_end' the messages of the source, else those of the copy.
    OUT outcome text, OUT messages bigint, OUT after_bytes bigint, OUT forked_at bigint, OUT new_title bytea
) LANGUAGE plpgsql AS $$
DECLARE
    v_head sessions%ROWTYPE;
    v_instructions bigint;
    v_instruction_bytes bigint;
    v_keep bigint;
    v_row bigint;
BEGIN
    IF NOT holds_lease_1(p_owner, p_source, p_token) THEN
        outcome := 'lost';
        RETURN;
    END IF;
    SELECT * INTO v_head FROM sessions WHERE owner = p_owner AND session_id = p_source FOR SHARE;
    IF NOT FOUND THEN
        outcome := 'not_found';
        RETURN;
    END IF;
    PERFORM 1 FROM sessions WHERE owner = p_owner AND session_id = p_new;
    IF FOUND THEN
        outcome := 'exists';
        RETURN;
    END IF;
    messages := coalesce(p_before, v_head.message_count);
    IF messages > v_head.message_count THEN
        outcome := 'past_end';
        messages := v_head.message_count;
        RETURN;
    END IF;
    v_instructions := least(v_head.instruction_count, messages);
    v_keep := messages - v_instructions;
    SELECT coalesce(sum(octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
            + coalesce(octet_length(sources), 0)), 0),
        coalesce(sum(octet_length(json)) FILTER (WHERE seq < 0), 0)
    INTO after_bytes, v_instruction_bytes FROM messages m
    WHERE m.session = v_head.num AND (seq < v_instructions - 4294967296 OR (seq >= 0 AND seq < v_keep));
    after_bytes := after_bytes + coalesce(octet_length(v_head.metadata), 0);
    IF after_bytes > 0 AND after_bytes > p_most THEN
        outcome := 'too_large';
        RETURN;
    END IF;
    IF after_bytes > p_room THEN
        outcome := 'full';
        RETURN;
    END IF;
    forked_at := micros_1();
    IF v_head.title_seq < v_keep THEN
        new_title := v_head.title;
    ELSE
        v_head.title_seq := NULL;
    END IF;
    INSERT INTO sessions (owner, session_id, instruction_count, instruction_bytes, message_count, bytes, title_seq, title,
                          created_at, updated_at, metadata)
    VALUES (p_owner, p_new, v_instructions, v_instruction_bytes, messages, after_bytes, v_head.title_seq, new_title,
            forked_at, forked_at, v_head.metadata)
    ON CONFLICT (owner, session_id) DO NOTHING RETURNING num INTO v_row;
    IF v_row IS NULL THEN
        outcome := 'exists';
        RETURN;
    END IF;
    INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
    SELECT v_row, m.seq, m.json, m.hidden, m.view, m.full_text, m.sources FROM messages m
    WHERE m.session = v_head.num AND (m.seq < v_instructions - 4294967296 OR (m.seq >= 0 AND m.seq < v_keep));
    INSERT INTO session_files (session, file) SELECT v_row, file FROM session_files WHERE session = v_head.num;
    outcome := 'done';
END $$;

-- Adds a file of the owner to a session, which is created if it does not exist.
CREATE FUNCTION add_to_session_1(p_owner text, p_file text, p_session text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_row bigint;
BEGIN
    INSERT INTO sessions (owner, session_id, created_at, updated_at)
    VALUES (p_owner, p_session, micros_1(), micros_1())
    ON CONFLICT (owner, session_id) DO UPDATE SET updated_at = excluded.updated_at
    RETURNING num INTO v_row;
    INSERT INTO session_files (session, file)
    SELECT v_row, f.num FROM files f WHERE f.owner = p_owner AND f.id = p_file ON CONFLICT DO NOTHING;
END $$;

-- Inserts the row of a file unless the owner has it; returns whether that is so.
CREATE FUNCTION insert_file_1(
    p_owner text, p_id text, p_session text, p_name bytea, p_mime_type bytea, p_bytes bigint, p_purpose text,
    p_tool bytea, p_round bigint, p_blob text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_known boolean;
BEGIN
    INSERT INTO files (id, owner, bound, name, mime_type, bytes, purpose, tool, round, created_at, last_used_at, blob)
    VALUES (p_id, p_owner, p_session IS NOT NULL, p_name, p_mime_type, p_bytes, p_purpose, p_tool, p_round, micros_1(),
            micros_1(), p_blob)
    ON CONFLICT (id) DO NOTHING;
    v_known := NOT FOUND;
    IF v_known THEN
        UPDATE files SET last_used_at = micros_1() WHERE owner = p_owner AND id = p_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the file belongs to another owner' USING ERRCODE = 'LW001';
        END IF;
    END IF;
    IF p_session IS NOT NULL THEN
        PERFORM add_to_session_1(p_owner, p_id, p_session);
    END IF;
    RETURN v_known;
END $$;

-- Gives the key of a run that did not end to the run that continues it; returns whether that was so.
CREATE FUNCTION reclaim_key_1(p_owner text, p_key bytea, p_from text, p_to text, p_since bigint, p_replica text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE idempotency_keys k SET run = p_to, replica = p_replica
    WHERE k.owner = p_owner AND k.key = p_key AND k.run = p_from AND k.created_at >= p_since
      AND ((NOT k.recorded AND (k.replica = p_replica OR NOT is_alive_1(k.replica)))
           OR EXISTS (SELECT 1 FROM runs r WHERE r.id = p_from AND r.owner = p_owner AND r.status <> 'ended'
                        AND (r.status = 'interrupted' OR r.replica = p_replica OR NOT is_alive_1(r.replica))));
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM begin_run_1(p_owner, p_to,
        (SELECT session_id FROM runs WHERE id = p_from AND owner = p_owner), p_replica);
    RETURN true;
END $$;
