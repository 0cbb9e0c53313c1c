-- +goose Up
-- A guild that leaves is there for nobody from removed_at on. Until removed_after it
-- can be taken back; then all that it has goes, its row last.
ALTER TABLE guilds
    ADD COLUMN removed_at    timestamptz,
    ADD COLUMN removed_after timestamptz,
    ADD CONSTRAINT guilds_removed CHECK ((removed_at IS NULL) = (removed_after IS NULL)) NOT VALID;
