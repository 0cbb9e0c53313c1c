-- +goose Up
-- What callers keep with a resource for themselves. It is shown and never searched.
ALTER TABLE cases ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
ALTER TABLE tickets ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
ALTER TABLE giveaways ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
