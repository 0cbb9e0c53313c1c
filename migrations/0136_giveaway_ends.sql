-- +goose Up
-- bot_run: a record of the bot's has made the giveaway or named it, so that it is the
-- bot's to run. edit_at is when its message is to be brought in line with it, or is
-- tried again, edit_failures how often that has failed.
ALTER TABLE giveaways
    ADD COLUMN bot_run       boolean NOT NULL DEFAULT false,
    ADD COLUMN edit_at       timestamptz,
    ADD COLUMN edit_failures integer NOT NULL DEFAULT 0;
