-- +goose Up
-- A guild: what the chat platform says of it, the counters of its human numbers, and
-- whether it is leaving.
CREATE TABLE guilds (
    id            text COLLATE "C" PRIMARY KEY,
    name          text        NOT NULL,
    icon_url      text,
    owner_id      text COLLATE "C" NOT NULL,
    member_count  bigint      NOT NULL DEFAULT 0,
    locale        text        NOT NULL DEFAULT 'en-US',
    joined_at     timestamptz NOT NULL DEFAULT now(),
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(), -- when a member of the guild's record last changed
    -- The highest numbers given out so far. The statement that takes the next number
    -- locks the guild's row, so numbers rise in commit order.
    last_case     bigint      NOT NULL DEFAULT 0,
    last_ticket   bigint      NOT NULL DEFAULT 0,
    last_case_at  timestamptz,                        -- created_at of the newest case: later cases get later instants
    -- A guild is hidden from removed_at on. Until removed_after it can be taken back;
    -- then its rows are deleted, the row in guilds last.
    removed_at    timestamptz,
    removed_after timestamptz,
    -- When the chat platform is next asked about the guild.
    facts_due_at  timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT guilds_removed CHECK ((removed_at IS NULL) = (removed_after IS NULL))
);

CREATE INDEX guilds_changed ON guilds (updated_at, id);
CREATE INDEX guilds_leaving ON guilds (removed_after) WHERE removed_after IS NOT NULL;
CREATE INDEX guilds_facts_due ON guilds (facts_due_at, id) WHERE removed_at IS NULL;

-- The settings of a guild: the modules that are on, and a few options of modules.
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
    updated_at           timestamptz NOT NULL DEFAULT now(),
    xp_periods           boolean     NOT NULL DEFAULT false -- whether XP is counted by week and month
);

-- Each change of XP asks whether its guild counts weeks and months; most do not.
CREATE INDEX guild_settings_xp_periods ON guild_settings (guild_id) INCLUDE (timezone) WHERE xp_periods;

-- When any node may next ask the chat platform about a guild: one row, which limits the
-- calls of all nodes together.
CREATE TABLE facts_turn (
    single  boolean     NOT NULL DEFAULT true PRIMARY KEY,
    next_at timestamptz NOT NULL,
    CONSTRAINT facts_turn_single CHECK (single)
);

INSERT INTO facts_turn (next_at) VALUES (now());
