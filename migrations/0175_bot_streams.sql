-- +goose Up
-- A stream is what the operator's bot fetches the events of all guilds from. In each
-- guild it has a listener, which says what of the guild's it wants: these are made and
-- changed guild by guild, in the background.
--   complete_since  since then nothing is lost; null while guilds are still being told
--   walked          the last guild that was told; null where all have been
--   settled         whether all guilds that are made know of it since it last changed
--   ended_at        it has ended, and its listeners are being removed
CREATE TABLE bot_streams (
    id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    events text[] NOT NULL,
    echo boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    fetched_at timestamptz,
    fetched_by text COLLATE "C",
    complete_since timestamptz,
    walked text COLLATE "C",
    settled boolean NOT NULL DEFAULT false,
    ended_at timestamptz
);
CREATE UNIQUE INDEX bot_streams_name ON bot_streams (name) WHERE ended_at IS NULL;
-- What is recorded for the stream of work is for it alone: it listens to nothing.
INSERT INTO bot_streams (id, name, events, echo, complete_since) VALUES ('work', 'work', '{work.requested}', true, now());

CREATE TABLE stream_listeners (
    guild_id text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    events text[] NOT NULL,
    echo boolean NOT NULL,
    PRIMARY KEY (guild_id, stream_id)
);
CREATE INDEX stream_listeners_stream ON stream_listeners (stream_id, guild_id);

-- An event that waits for a stream, until it is acknowledged or too old.
CREATE TABLE stream_deliveries (
    guild_id text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    event_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL DEFAULT now(),
    fetched boolean NOT NULL DEFAULT false,
    PRIMARY KEY (guild_id, stream_id, event_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX stream_deliveries_due ON stream_deliveries (stream_id, due_at, guild_id, event_id);
CREATE INDEX stream_deliveries_event ON stream_deliveries (event_id);
CREATE INDEX stream_deliveries_age ON stream_deliveries (event_at);
