-- +goose Up
-- The oldest schema version that a program must know to run on this database: one
-- row. A contracting migration raises it before it begins, and a program that knows
-- only older versions does not start.
CREATE TABLE oldest_program (
    single         boolean NOT NULL DEFAULT true PRIMARY KEY,
    schema_version bigint  NOT NULL,
    CONSTRAINT oldest_program_single CHECK (single)
);

INSERT INTO oldest_program (schema_version) VALUES (0);

-- One row, sealed with the secret key of the installation. A program that was given
-- another key cannot open it and does not start: it could neither sign events nor
-- open what other nodes have sealed.
CREATE TABLE secret_key_check (
    single     boolean     NOT NULL DEFAULT true PRIMARY KEY,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secret_key_check_single CHECK (single)
);
