-- +goose Up
-- One job at a time brings a ticket's channel in line with the ticket: the one
-- that holds the lease. channel_lock is what archiving has changed about a
-- channel that is no thread, as it was before, so that reopening undoes it.
ALTER TABLE tickets
    ADD COLUMN channel_lease_until timestamptz,
    ADD COLUMN channel_lease_gen bigint NOT NULL DEFAULT 0,
    ADD COLUMN channel_lock jsonb;
