-- +goose Up
-- The program runs without this migration.
-- One row of the installation's own, sealed with the key that its secrets are
-- sealed with. A program that cannot open it was given another key, and does not
-- start: it could send no event, and would seal what the other nodes cannot open.
CREATE TABLE secret_key_check (
    single     boolean NOT NULL DEFAULT true,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secret_key_check_pkey PRIMARY KEY (single),
    CONSTRAINT secret_key_check_single CHECK (single)
);
