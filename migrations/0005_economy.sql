-- +goose Up
-- No foreign keys here: a guild's rows are reached only through a token of that
-- guild or an import that has checked it, the ledger row is written by the
-- statement that writes the wallet, and a key share lock on the one guild row
-- by every new wallet would make all of them meet there.
CREATE TABLE wallets (
    guild_id   text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    balance    bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, user_id),
    CONSTRAINT wallets_not_negative CHECK (balance >= 0),
    CONSTRAINT wallets_within_limit CHECK (balance <= 9007199254740991)
) WITH (fillfactor = 85);

-- The leaderboard's order; numeric order of a snowflake is length, then text.
CREATE INDEX wallets_leaderboard ON wallets (guild_id, (-balance), length(user_id), user_id);

CREATE TABLE ledger_entries (
    guild_id      text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    delta         bigint      NOT NULL,
    balance_after bigint      NOT NULL,
    reason        text,
    note          text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX ledger_entries_newest ON ledger_entries (guild_id, created_at DESC, id DESC);
CREATE INDEX ledger_entries_by_user ON ledger_entries (guild_id, user_id, created_at DESC, id DESC);
