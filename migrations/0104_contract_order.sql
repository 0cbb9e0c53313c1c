-- +goose Up
-- Migrations that take away what an older program needs stand in contract/, in an
-- order and a version table of their own. Builds before the release ran three of
-- them as ordinary ones.
CREATE TABLE goose_contract_version (LIKE goose_db_version INCLUDING ALL);
INSERT INTO goose_contract_version (version_id, is_applied)
SELECT DISTINCT version_id, true FROM goose_db_version WHERE version_id IN (0, 101, 102, 103) AND is_applied ORDER BY version_id;

-- The oldest schema version that a program must know. A migration in contract/
-- sets it before it begins, and a program that knows less does not start.
CREATE TABLE oldest_program (
    single         boolean NOT NULL DEFAULT true,
    schema_version bigint NOT NULL,
    CONSTRAINT oldest_program_pkey PRIMARY KEY (single),
    CONSTRAINT oldest_program_single CHECK (single)
);
INSERT INTO oldest_program (schema_version) SELECT max(version_id) FROM goose_contract_version;
