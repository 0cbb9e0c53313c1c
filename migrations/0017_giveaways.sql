-- +goose Up
-- A giveaway. Its row alone says what is to be done next, also after a crash.
CREATE TABLE giveaways (
    guild_id          text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id                text COLLATE "C" NOT NULL,
    -- Who runs it. api: the bot posts its message, and members enter by a reaction.
    -- bot: it came from the bot, with its entries.
    source            text        NOT NULL DEFAULT 'bot'
        CONSTRAINT giveaways_source CHECK (source IN ('api', 'bot')),
    bot_run           boolean     NOT NULL DEFAULT false, -- a record of the bot made or named it: the bot runs it
    status            text COLLATE "C" NOT NULL
        CONSTRAINT giveaways_status CHECK (status IN ('scheduled', 'active', 'paused', 'drawing', 'ended', 'cancelled')),
    prize             text        NOT NULL
        CONSTRAINT giveaways_prize_length CHECK (char_length(prize) BETWEEN 1 AND 200),
    description       text
        CONSTRAINT giveaways_description_length CHECK (char_length(description) <= 1000),
    winner_count      integer     NOT NULL
        CONSTRAINT giveaways_winner_count CHECK (winner_count BETWEEN 1 AND 100),
    -- The statement that changes entries changes both counters, so that showing a
    -- giveaway never counts.
    entrant_count     bigint      NOT NULL DEFAULT 0,
    entry_count       bigint      NOT NULL DEFAULT 0
        CONSTRAINT giveaways_entry_count CHECK (entry_count BETWEEN 0 AND 9007199254740991),
    winners           text[]      NOT NULL DEFAULT '{}',
    host_id           text COLLATE "C",
    channel_id        text COLLATE "C" NOT NULL,
    message_id        text COLLATE "C",
    post_id           text COLLATE "C",                   -- the intent of its message
    metadata          jsonb       NOT NULL DEFAULT '{}',
    starts_at         timestamptz NOT NULL,
    ends_at           timestamptz NOT NULL,
    paused_at         timestamptz,                        -- the pause, or a change of ends_at in it: resuming moves ends_at by the time since then
    ended_at          timestamptz,
    ended_by_token_id text COLLATE "C",                   -- the token that ended it; null when its time was over
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    -- open: entries are added and removed. gathering: the reactions are being read,
    -- nothing else is added. frozen: the entries never change again.
    pot               text        NOT NULL DEFAULT 'open'
        CONSTRAINT giveaways_pot CHECK (pot IN ('open', 'gathering', 'frozen')),
    drawing_at        timestamptz,                        -- when drawing began; of one that came in over, when its entries were closed
    -- When a giveaway in status drawing is next worked on. An imported one is due at once.
    redraw_at         timestamptz NOT NULL DEFAULT now(),
    rounds            integer     NOT NULL DEFAULT 0,     -- draws so far; each has a row in giveaway_draws
    reaction_after    text COLLATE "C" NOT NULL DEFAULT '', -- the reactions up to this member are read
    reaction_count    bigint      NOT NULL DEFAULT 0,     -- members found among them
    reactions_missed  boolean     NOT NULL DEFAULT false, -- not all reactions could be read
    react_at          timestamptz,                        -- when the bot is to add its own reaction; null: never
    failures          integer     NOT NULL DEFAULT 0,     -- of reading, reacting or drawing, in a row
    edit_at           timestamptz,                        -- when its message is to be edited, or tried again
    edit_failures     integer     NOT NULL DEFAULT 0,
    edited_at         timestamptz,                        -- when the last edit of its message ended
    shown             bytea,                              -- SHA-256 of the text that its message shows; null: not known
    post_problem      text                                -- why its message could not be edited or read
        CONSTRAINT giveaways_post_problem CHECK (post_problem IN ('deleted', 'no_channel', 'forbidden', 'failed')),
    PRIMARY KEY (guild_id, id)
) WITH (fillfactor = 85); -- free space on the page for the next version of a row whose counters change

CREATE INDEX giveaways_newest ON giveaways (guild_id, created_at DESC, id DESC);
CREATE INDEX giveaways_by_status ON giveaways (guild_id, status, created_at DESC, id DESC);
CREATE INDEX giveaways_changed ON giveaways (guild_id, updated_at, id);
CREATE INDEX giveaways_changed_by_status ON giveaways (guild_id, status, updated_at, id);

-- The list by metadata. A key holds guild, name and value, so a lookup reads nothing of another
-- guild. With fastupdate each lookup would read a list of the newest keys of all guilds.
CREATE INDEX giveaways_metadata ON giveaways USING gin (jsonb_set('{}', ARRAY[guild_id], metadata) jsonb_path_ops)
    WITH (fastupdate = off) WHERE metadata <> '{}';

-- The giveaways that are due, over all guilds.
CREATE INDEX giveaways_starting ON giveaways (starts_at) WHERE status = 'scheduled';
CREATE INDEX giveaways_ending ON giveaways (ends_at) WHERE status = 'active';
CREATE INDEX giveaways_drawing ON giveaways (redraw_at) WHERE status = 'drawing';
-- The giveaways that are due in each guild, so that a guild with many due giveaways
-- delays no other guild.
CREATE INDEX giveaways_to_draw ON giveaways (guild_id, redraw_at) WHERE status = 'drawing' AND pot <> 'gathering';
CREATE INDEX giveaways_to_gather ON giveaways (guild_id, redraw_at) WHERE status = 'drawing' AND pot = 'gathering';
CREATE INDEX giveaways_to_react ON giveaways (guild_id, react_at) WHERE react_at IS NOT NULL;
CREATE INDEX giveaways_to_edit ON giveaways (guild_id, edit_at) WHERE edit_at IS NOT NULL;

-- A member's entries in a giveaway. No foreign key leads to the giveaway: the statement
-- that adds entries changes the giveaway's counters and so proves that it exists, once
-- and not for each row.
CREATE TABLE giveaway_entries (
    guild_id    text COLLATE "C" NOT NULL,
    giveaway_id text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    entries     bigint      NOT NULL DEFAULT 1
        CONSTRAINT giveaway_entries_entries CHECK (entries BETWEEN 1 AND 9007199254740991),
    entered_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, giveaway_id, user_id)
);

-- The order of the list. The numeric order of ids is that of their length, then of their text.
CREATE INDEX giveaway_entries_oldest ON giveaway_entries (guild_id, giveaway_id, entered_at, length(user_id), user_id);

-- The record of one draw, never changed. With the records and the entries anyone can repeat the
-- draw: the winners are drawn by the seed from the entrants who had not won before and are not
-- in excluded, as internal/service/giveaways documents. Nothing in a record grows with the rounds.
CREATE TABLE giveaway_draws (
    guild_id     text COLLATE "C" NOT NULL,
    giveaway_id  text COLLATE "C" NOT NULL,
    round        integer     NOT NULL
        CONSTRAINT giveaway_draws_round CHECK (round BETWEEN 1 AND 1000),
    seed         bytea       NOT NULL
        CONSTRAINT giveaway_draws_seed CHECK (octet_length(seed) = 32),
    entries_hash bytea       NOT NULL
        CONSTRAINT giveaway_draws_entries_hash CHECK (octet_length(entries_hash) = 32),
    entry_count  bigint      NOT NULL -- entries of the round, without those of earlier winners and of excluded
        CONSTRAINT giveaway_draws_entry_count CHECK (entry_count BETWEEN 0 AND 9007199254740991),
    excluded     text[]      NOT NULL, -- members whom the caller of a reroll left out
    drawn        text[]      NOT NULL, -- this round's winners, in the order of drawing
    replaced     text[]      NOT NULL, -- the winners whom they replace
    token_id     text COLLATE "C",     -- the token that asked for a reroll; null for the first draw
    reason       text,
    drawn_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, giveaway_id, round),
    FOREIGN KEY (guild_id, giveaway_id) REFERENCES giveaways (guild_id, id) ON DELETE CASCADE
);

-- Members who may not take part in a giveaway: they have no entries in it and get none, by
-- reaction or record.
CREATE TABLE giveaway_disqualified (
    guild_id        text COLLATE "C" NOT NULL,
    giveaway_id     text COLLATE "C" NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    disqualified_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, giveaway_id, user_id),
    FOREIGN KEY (guild_id, giveaway_id) REFERENCES giveaways (guild_id, id) ON DELETE CASCADE
);

CREATE INDEX giveaway_disqualified_user ON giveaway_disqualified (guild_id, user_id);
