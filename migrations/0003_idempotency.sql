-- +goose Up
-- One row per (token, key). The primary key is the lock: a concurrent twin of a
-- request waits on it. A row is written in the transaction of the change it
-- answers for, so a crash leaves neither.
CREATE TABLE idempotency_keys (
    token_id     text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea       NOT NULL,
    state        text        NOT NULL DEFAULT 'running'
        CONSTRAINT idempotency_keys_state CHECK (state IN ('running', 'done')),
    status       integer,
    location     text,
    retry_after  text,
    -- The exact bytes of the answer, sealed: some answers show a new secret.
    body         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- Only the operation that calls out between two commits holds a lease.
    lease_until  timestamptz,
    lease_gen    bigint      NOT NULL DEFAULT 0,
    recovery     jsonb,
    PRIMARY KEY (token_id, key),
    CONSTRAINT idempotency_keys_answered CHECK (state = 'running' OR (status IS NOT NULL AND body IS NOT NULL))
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
