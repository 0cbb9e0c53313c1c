-- +goose Up
-- An Idempotency-Key of a token or bot key, with the response that a repeat gets. The
-- primary key is the lock: a concurrent request with the same key waits for it. The row
-- is written in the transaction of the change, so a crash leaves neither or both.
CREATE TABLE idempotency_keys (
    guild_id    text COLLATE "C" NOT NULL,
    token_id    text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    state       text        NOT NULL DEFAULT 'running'
        CONSTRAINT idempotency_keys_state CHECK (state IN ('running', 'done')),
    status      integer,
    location    text,
    retry_after text,
    -- The exact bytes of the response, sealed, since some responses show a new secret.
    -- A batched adjustment stores none: its response is built from the ledger entry or
    -- from the member's XP before and after, which the row names instead.
    body        bytea,
    entry_id    text COLLATE "C", -- the ledger entry
    entry_at    timestamptz,      -- the instant of the ledger entry or of the change of XP
    xp_of       text COLLATE "C", -- the member whose XP changed
    xp_before   bigint,
    xp_after    bigint,
    -- Set by the one operation that calls the chat platform between two commits.
    lease_until timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, token_id, key),
    CONSTRAINT idempotency_keys_answered CHECK (state = 'running' OR status IS NOT NULL AND (body IS NOT NULL OR entry_at IS NOT NULL
        AND (entry_id IS NOT NULL OR xp_of IS NOT NULL AND xp_before IS NOT NULL AND xp_after IS NOT NULL)))
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
