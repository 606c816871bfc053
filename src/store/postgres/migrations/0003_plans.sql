-- In this language the plan of the query is kept; a function in SQL plans it at each call, which took a third of
-- the time of a write.
CREATE OR REPLACE FUNCTION is_alive_1(p_replica text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM replicas WHERE id = p_replica AND expires_at > now());
END $$;
