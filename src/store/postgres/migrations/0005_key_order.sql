-- The oldest keys of an owner are evicted first.
CREATE INDEX idempotency_keys_owner ON idempotency_keys (owner, created_at);
