-- A process holds an advisory lock with this number on a connection of its own. The database frees it when that connection
-- ends. NULL: the process is judged by `expires_at` alone, as those of earlier versions are.
ALTER TABLE replicas ADD COLUMN lock bigint;
-- The start of the server on which the lock is held. Another server, or the same one after a restart, does not know the lock.
ALTER TABLE replicas ADD COLUMN lock_server bigint;
-- When the lock was found to be free. A process that lives clears it.
ALTER TABLE replicas ADD COLUMN unlocked_at timestamptz;

CREATE FUNCTION server_6() RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint $$;

-- Whether this connection to the server holds the lock.
CREATE FUNCTION holds_lock_6(p_lock bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT 1 FROM pg_locks
        WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
          AND (classid::bigint << 32) | objid::bigint = p_lock)
$$;

-- Deletes the rows of processes whose locks are free for longer than the milliseconds of p_grace. Those that look at the
-- same time share the lock while they do. `suspected`: processes whose locks are free for a shorter time.
CREATE FUNCTION bury_unlocked_6(p_self text, p_grace bigint, OUT suspected bigint, OUT dead bigint)
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE replicas SET unlocked_at = now()
    WHERE id <> p_self AND unlocked_at IS NULL AND lock_server = server_6() AND pg_try_advisory_xact_lock_shared(lock);
    DELETE FROM replicas
    WHERE id <> p_self AND unlocked_at <= now() - p_grace * interval '1 millisecond' AND lock_server = server_6()
      AND pg_try_advisory_xact_lock_shared(lock);
    GET DIAGNOSTICS dead = ROW_COUNT;
    SELECT count(*) INTO suspected FROM replicas WHERE unlocked_at IS NOT NULL AND lock_server = server_6();
END $$;
