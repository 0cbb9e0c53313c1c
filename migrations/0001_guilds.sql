-- +goose Up
CREATE TABLE guilds (
    id           text COLLATE "C" PRIMARY KEY,
    name         text        NOT NULL,
    icon_url     text,
    owner_id     text COLLATE "C" NOT NULL,
    member_count bigint      NOT NULL DEFAULT 0,
    locale       text        NOT NULL DEFAULT 'en-US',
    joined_at    timestamptz NOT NULL DEFAULT now(),
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- The highest human numbers given out so far. A row lock on the guild hands
    -- out the next one, so numbers rise in commit order.
    last_case    bigint      NOT NULL DEFAULT 0,
    last_ticket  bigint      NOT NULL DEFAULT 0
);

CREATE TABLE guild_settings (
    guild_id             text COLLATE "C" PRIMARY KEY REFERENCES guilds (id) ON DELETE CASCADE,
    moderation           boolean     NOT NULL DEFAULT true,
    economy              boolean     NOT NULL DEFAULT true,
    levelling            boolean     NOT NULL DEFAULT true,
    tickets              boolean     NOT NULL DEFAULT true,
    giveaways            boolean     NOT NULL DEFAULT true,
    network              boolean     NOT NULL DEFAULT true,
    currency_name        text        NOT NULL DEFAULT 'coins',
    currency_symbol      text        NOT NULL DEFAULT '🪙',
    require_close_reason boolean     NOT NULL DEFAULT false,
    close_action         text        NOT NULL DEFAULT 'archive'
        CONSTRAINT guild_settings_close_action CHECK (close_action IN ('archive', 'delete')),
    timezone             text        NOT NULL DEFAULT 'UTC',
    updated_at           timestamptz NOT NULL DEFAULT now()
);
