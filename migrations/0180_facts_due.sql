-- +goose Up
-- When the platform is next asked what a guild is. A guild of which nobody has asked is
-- due at once. The database rewrites no row.
ALTER TABLE guilds ADD COLUMN facts_due_at timestamptz NOT NULL DEFAULT '-infinity';
-- All nodes together ask so often and no more: each call takes its turn from this row.
CREATE TABLE facts_turn (
    single boolean NOT NULL DEFAULT true,
    next_at timestamptz NOT NULL,
    CONSTRAINT facts_turn_pkey PRIMARY KEY (single),
    CONSTRAINT facts_turn_single CHECK (single)
);
INSERT INTO facts_turn (next_at) VALUES (now());
