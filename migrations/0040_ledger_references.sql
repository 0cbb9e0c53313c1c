-- +goose Up
-- A caller's own name of a change, taken once in a guild and for ever: the key
-- decides between two changes that bring the same one. entry_id is the ledger
-- row; null for a reference that the guild has brought along from elsewhere,
-- since ledgers do not move.
CREATE TABLE ledger_references (
    guild_id  text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL
        CONSTRAINT ledger_references_length CHECK (char_length(reference) BETWEEN 1 AND 128),
    entry_id  text COLLATE "C",
    PRIMARY KEY (guild_id, reference)
);

ALTER TABLE ledger_entries ADD COLUMN reference text COLLATE "C";
