-- +goose NO TRANSACTION
-- +goose Up
-- Answers of the day before the upgrade are replayed after it, so their rows get
-- their guild too: a thousand at a time, each part with its own commit. Nobody
-- can ask for the answers of a token that is gone.
-- +goose StatementBegin
DO $$
DECLARE
    last_token text := '';
    last_key   text := '';
    step       record;
BEGIN
    LOOP
        WITH part AS MATERIALIZED (
            SELECT k.token_id, k.key, t.guild_id
            FROM idempotency_keys k
            LEFT JOIN api_tokens t ON t.id = k.token_id
            WHERE (k.token_id, k.key) > (last_token, last_key)
            ORDER BY k.token_id, k.key
            LIMIT 1000
        ), filled AS (
            UPDATE idempotency_keys k
            SET guild_id = part.guild_id
            FROM part
            WHERE k.token_id = part.token_id AND k.key = part.key AND k.guild_id IS NULL AND part.guild_id IS NOT NULL
        ), gone AS (
            DELETE FROM idempotency_keys k
            USING part
            WHERE k.token_id = part.token_id AND k.key = part.key AND k.guild_id IS NULL AND part.guild_id IS NULL
        )
        SELECT token_id, key INTO step FROM part ORDER BY token_id DESC, key DESC LIMIT 1;
        EXIT WHEN step.key IS NULL;
        last_token := step.token_id;
        last_key := step.key;
        COMMIT;
    END LOOP;
END
$$;
-- +goose StatementEnd
