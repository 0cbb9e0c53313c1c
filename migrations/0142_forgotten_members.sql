-- +goose Up
-- Members whom a guild is to forget. What stood there at requested_at goes in steps;
-- the row goes with the last of them.
CREATE TABLE forgotten_members (
    guild_id     text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    cases        boolean     NOT NULL, -- those about the member go too
    by_id        text COLLATE "C",     -- the bot key that asked; null: an operator
    requested_at timestamptz NOT NULL,
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX forgotten_members_age ON forgotten_members (requested_at);

-- Members whom several guilds are to forget. The worker goes from guild to guild in
-- the order of their ids; reached is the last one it has asked.
CREATE TABLE forgotten_everywhere (
    id           text COLLATE "C" PRIMARY KEY,
    user_id      text COLLATE "C" NOT NULL,
    cases        boolean     NOT NULL,
    by_id        text COLLATE "C",
    guild_ids    text[], -- null: every guild
    reached      text COLLATE "C" NOT NULL DEFAULT '',
    requested_at timestamptz NOT NULL
);

CREATE INDEX forgotten_everywhere_age ON forgotten_everywhere (requested_at);
