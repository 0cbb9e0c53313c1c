-- +goose Up
-- A member's balance. It has no foreign key to the guild: each new wallet would lock the
-- guild's row (FOR KEY SHARE), and all new wallets would wait there. A wallet is reached
-- only through a token of the guild or an import, which has checked the guild.
CREATE TABLE wallets (
    guild_id   text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    balance    bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, user_id),
    CONSTRAINT wallets_not_negative CHECK (balance >= 0),
    CONSTRAINT wallets_within_limit CHECK (balance <= 9007199254740991)
) WITH (fillfactor = 85);

-- The order of the leaderboard, and the balance, so that a page is read from the index
-- alone. The numeric order of ids is that of their length, then of their text.
CREATE INDEX wallets_ranked ON wallets (guild_id, (-balance), length(user_id), user_id) INCLUDE (balance);

-- Among very many small guilds Postgres plans for five rows a guild and reads a guild
-- whole to find some of its members. Told that a guild is a twentieth of the table, it
-- looks up each member.
ALTER TABLE wallets ALTER COLUMN guild_id SET (n_distinct = 20);

-- One change of a balance. The statement that changes the wallet writes it.
CREATE TABLE ledger_entries (
    guild_id      text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    delta         bigint      NOT NULL,
    balance_after bigint      NOT NULL,
    reason        text,
    note          text        NOT NULL,
    reference     text COLLATE "C",
    created_at    timestamptz NOT NULL DEFAULT now(),
    author_id     text COLLATE "C", -- who acted through the caller
    counterparty_id text COLLATE "C", -- the other member of a transfer
    -- Ascending, so that new rows go to the end of the index and fill its pages.
    PRIMARY KEY (guild_id, created_at, id)
);

CREATE INDEX ledger_entries_by_user ON ledger_entries (guild_id, user_id, created_at DESC, id DESC);
CREATE INDEX ledger_entries_counterparty ON ledger_entries (guild_id, counterparty_id) WHERE counterparty_id IS NOT NULL;
CREATE INDEX ledger_entries_author ON ledger_entries (guild_id, author_id) WHERE author_id IS NOT NULL;
CREATE INDEX ledger_entries_reference ON ledger_entries (guild_id, reference) WHERE reference IS NOT NULL;

-- A caller's own name of a change, used once in a guild for ever. The primary key decides
-- between two changes with one reference.
CREATE TABLE ledger_references (
    guild_id  text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL
        CONSTRAINT ledger_references_length CHECK (char_length(reference) BETWEEN 1 AND 128),
    entry_id  text COLLATE "C", -- the ledger entry; null for an imported reference, since ledgers are not imported
    PRIMARY KEY (guild_id, reference)
);
