-- +goose Up
-- What the API has posted keeps its author and its kind.
ALTER TABLE ticket_messages ADD COLUMN posted boolean NOT NULL DEFAULT false;
