-- +goose Up
-- When what a bot is told of its guilds has last changed: for each guild that is there,
-- now. The database works the default out once, and rewrites no row.
ALTER TABLE guilds ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now();
