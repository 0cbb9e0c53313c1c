-- +goose Up
-- The program runs without this migration.
-- A statement that changes many tokens, such as the revocation of all of a
-- guild's, announces itself once: one step of the epoch, and * for whatever it
-- changed. Row by row it would lock the epoch from its first row on, step it
-- once a row, and fill the queue of notifications. One changed token is
-- announced by its hash, as before.
--
-- More than one hash under the same epoch would be wrong: a node that has heard
-- the first would say that it knows the epoch before it has heard the others.
-- +goose StatementBegin
CREATE FUNCTION api_tokens_announce_updates() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    n       bigint;
    changed bytea[];
BEGIN
    -- By all columns: rows that the statement left as they were cancel out.
    SELECT array_agg(hash) INTO changed
    FROM (SELECT hash FROM (SELECT * FROM before EXCEPT ALL SELECT * FROM after) AS was LIMIT 2) AS gone;
    IF changed IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch INTO STRICT n;
    IF cardinality(changed) = 1 AND EXISTS (SELECT FROM after WHERE hash = changed[1]) THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(changed[1], 'hex'));
    ELSE
        PERFORM pg_notify('guildhall_tokens', n || ' *');
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

DROP TRIGGER api_tokens_announce_update ON api_tokens;

CREATE TRIGGER api_tokens_announce_update
    AFTER UPDATE ON api_tokens
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce_updates();
