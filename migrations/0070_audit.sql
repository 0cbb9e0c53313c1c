-- +goose Up
-- Who changed what. A row is written in the transaction of its change and never
-- changed afterwards; ids are UUIDv7, so their order is that of the changes.
-- It names no guild by a foreign key: it outlives what it tells of.
CREATE TABLE audit_log (
    guild_id    text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    actor_type  text        NOT NULL
        CONSTRAINT audit_log_actor_type CHECK (actor_type IN ('user', 'operator', 'command_line', 'token', 'system')),
    actor_id    text COLLATE "C" NOT NULL,
    actor_name  text        NOT NULL,
    address     text        NOT NULL, -- where the actor was; empty when nobody knows
    request_id  text        NOT NULL,
    action      text COLLATE "C" NOT NULL,
    target_id   text COLLATE "C" NOT NULL,
    target_name text        NOT NULL,
    before      jsonb,                -- of what was changed, without secrets
    after       jsonb,
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX audit_log_action ON audit_log (guild_id, action, id);
CREATE INDEX audit_log_actor ON audit_log (guild_id, actor_id, id);
CREATE INDEX audit_log_target ON audit_log (guild_id, target_id, id);
CREATE INDEX audit_log_age ON audit_log (at);
