-- +goose NO TRANSACTION
-- +goose Up
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
-- A ledger's one order by guild, which becomes its primary key: nobody looks a
-- row up by its id alone. It ascends, so that new rows go to its end and fill its
-- pages; read backwards it is the newest first.
DROP INDEX CONCURRENTLY IF EXISTS ledger_entries_order;
CREATE UNIQUE INDEX CONCURRENTLY ledger_entries_order ON ledger_entries (guild_id, created_at, id);
DROP INDEX CONCURRENTLY IF EXISTS ledger_entries_newest;
-- Only rows with a reference are looked for by anything else.
DROP INDEX CONCURRENTLY IF EXISTS ledger_entries_reference;
CREATE INDEX CONCURRENTLY ledger_entries_reference ON ledger_entries (guild_id, reference) WHERE reference IS NOT NULL;
RESET lock_timeout;
