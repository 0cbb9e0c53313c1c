-- +goose Up
-- Who changed what. A row is written in the transaction of its change and never changed
-- afterwards; ids are UUIDv7, so they stand in the order of the changes. No foreign key
-- leads to the guild: the log outlives the guild.
CREATE TABLE audit_log (
    guild_id    text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    actor_type  text        NOT NULL
        CONSTRAINT audit_log_actor_type CHECK (actor_type IN ('user', 'operator', 'command_line', 'token', 'bot_key', 'system')),
    actor_id    text COLLATE "C" NOT NULL,
    actor_name  text        NOT NULL,
    address     text        NOT NULL, -- of the actor; empty where it is unknown
    request_id  text        NOT NULL,
    action      text COLLATE "C" NOT NULL,
    target_id   text COLLATE "C" NOT NULL,
    target_name text        NOT NULL,
    before      jsonb,                -- the changed values before and after, without secrets
    after       jsonb,
    PRIMARY KEY (guild_id, id)
);

-- The dashboard lists changes without sign-ins unless it is asked for them.
CREATE INDEX audit_log_changes ON audit_log (guild_id, id)
    WHERE action NOT IN ('dashboard.link_used', 'dashboard.signed_in', 'dashboard.signed_out', 'dashboard.session_ended');
CREATE INDEX audit_log_action ON audit_log (guild_id, action, id);
CREATE INDEX audit_log_actor ON audit_log (guild_id, actor_id, id);
CREATE INDEX audit_log_target ON audit_log (guild_id, target_id, id);
CREATE INDEX audit_log_age ON audit_log (at);
