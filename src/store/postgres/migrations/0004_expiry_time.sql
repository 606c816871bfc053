-- The time by which things expire, in one row. `elapsed` counts the microseconds during which a process had the store open.
CREATE TABLE expiry_time (
    id smallint PRIMARY KEY CHECK (id = 1),
    trusted bigint NOT NULL,
    credit bigint NOT NULL,
    elapsed bigint NOT NULL
);
INSERT INTO expiry_time (id, trusted, credit, elapsed) SELECT 1, coalesce(
    greatest((SELECT max(updated_at) FROM sessions), (SELECT max(last_used_at) FROM files)), micros_1()), 43200000000, 0;

CREATE FUNCTION expiry_time_4() RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT least(micros_1(), trusted) FROM expiry_time $$;
