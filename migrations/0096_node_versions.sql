-- +goose Up
-- The newest migration that a node's program knows. Nodes of earlier releases
-- say nothing. Migrations that take away what an older program needs wait until
-- nobody beats with a lower number.
ALTER TABLE auth_nodes ADD COLUMN schema_version bigint;
