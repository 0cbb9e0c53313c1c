-- Inserts the endpoints $2 of guilds $1 with sealed secrets $3. For each, $6 deliveries wait for
-- $7: nothing, the next attempt, or the end of a block.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS n (guild, id, secret)
), guilds AS (
  INSERT INTO guilds (id, name, owner_id) SELECT DISTINCT guild, guild, guild FROM given
  ON CONFLICT DO NOTHING
), endpoints AS (
  INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
  SELECT guild, id, $4, $5, decode(secret, 'hex'), '' FROM given
), events AS (
  INSERT INTO webhook_events (guild_id, id, type, payload)
  SELECT guild, 'crowd-' || id, 'economy.balance_changed', convert_to('{"id":"' || id || '"}', 'UTF8') FROM given
), deliveries AS (
  INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, due_at)
  SELECT guild, id, 'crowd-' || id, 'economy.balance_changed', false,
         now() + CASE WHEN $7 = 'retry' THEN interval '1 hour' ELSE '0' END
  FROM given, generate_series(1, $6)
)
INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, failures, blocks, failing_since, blocked_until)
SELECT guild, id, CASE WHEN $6 > 0 THEN now() + CASE WHEN $7 = '' THEN '0' ELSE interval '1 hour' END END,
       CASE $7 WHEN 'retry' THEN 1 WHEN 'blocked' THEN 5 ELSE 0 END,
       CASE $7 WHEN 'blocked' THEN 1 ELSE 0 END,
       CASE WHEN $7 <> '' THEN now() END,
       CASE WHEN $7 = 'blocked' THEN now() + interval '1 hour' END
FROM given
