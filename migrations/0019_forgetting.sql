-- +goose Up
-- A member whom a guild is to forget. The member's rows that existed at requested_at are
-- deleted in steps; this row is deleted with the last of them.
CREATE TABLE forgotten_members (
    guild_id     text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    cases        boolean     NOT NULL, -- cases about the member are deleted too
    by_id        text COLLATE "C",     -- the bot key that asked; null: an operator
    requested_at timestamptz NOT NULL,
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX forgotten_members_age ON forgotten_members (requested_at);
