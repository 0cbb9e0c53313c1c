-- +goose Up
-- A stream, from which the operator's bot fetches the events of all guilds.
CREATE TABLE bot_streams (
    id             text COLLATE "C" PRIMARY KEY,
    name           text COLLATE "C" NOT NULL,
    events         text[]      NOT NULL,
    echo           boolean     NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    fetched_at     timestamptz,                    -- the last fetch, and the bot key that fetched
    fetched_by     text COLLATE "C",
    complete_since timestamptz,                    -- since then no event is missing; null while the backfill runs
    backfilled     text COLLATE "C",               -- the last guild of the backfill; null when it is complete
    in_sync        boolean     NOT NULL DEFAULT false, -- every guild's listener is as the stream is now
    ended_at       timestamptz                     -- the stream has ended, and its listeners are being deleted
);

CREATE UNIQUE INDEX bot_streams_name ON bot_streams (name) WHERE ended_at IS NULL;

-- The stream of work has no listeners: its events are recorded for it alone.
INSERT INTO bot_streams (id, name, events, echo, complete_since) VALUES ('work', 'work', '{work.requested}', true, now());

-- The subscription of a stream in one guild. A backfill writes these rows guild by guild.
CREATE TABLE stream_listeners (
    guild_id  text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    events    text[]  NOT NULL,
    echo      boolean NOT NULL,
    PRIMARY KEY (guild_id, stream_id)
);

CREATE INDEX stream_listeners_stream ON stream_listeners (stream_id, guild_id);

-- An event that waits in a stream until it is acknowledged or expires.
CREATE TABLE stream_deliveries (
    guild_id  text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    event_id  text COLLATE "C" NOT NULL,
    event_at  timestamptz NOT NULL,
    due_at    timestamptz NOT NULL DEFAULT now(),
    fetched   boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (guild_id, stream_id, event_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX stream_deliveries_due ON stream_deliveries (stream_id, due_at, guild_id, event_id);
-- The waiting events of one guild, so that a fetch finds them behind those of others.
CREATE INDEX stream_deliveries_guild ON stream_deliveries (stream_id, guild_id, due_at, event_id);
-- With guild_id: on distributed tables an event is looked up by both, and with statistics
-- of a time when few events waited, Postgres would read all events of the guild instead.
CREATE INDEX stream_deliveries_of_event ON stream_deliveries (event_id, guild_id);
CREATE INDEX stream_deliveries_age ON stream_deliveries (event_at);
