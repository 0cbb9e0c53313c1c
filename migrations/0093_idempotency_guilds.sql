-- +goose Up
-- A kept answer lies with its guild, like everything else that a write touches.
-- Nodes of the release before do not name it: until the last of them has
-- stopped (0102), the trigger fills it in for them.
ALTER TABLE idempotency_keys ADD COLUMN guild_id text COLLATE "C";

-- +goose StatementBegin
CREATE FUNCTION idempotency_keys_guild() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    SELECT t.guild_id INTO NEW.guild_id FROM api_tokens t WHERE t.id = NEW.token_id;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER idempotency_keys_guild BEFORE INSERT ON idempotency_keys
    FOR EACH ROW WHEN (NEW.guild_id IS NULL) EXECUTE FUNCTION idempotency_keys_guild();
