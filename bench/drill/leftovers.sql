-- What only a running node may hold, and waiting work: each lease ends within a minute, and its
-- work is due again then.
SELECT what, n
FROM (
  SELECT 'leases of deliveries' AS what, count(*) AS n FROM webhook_deliveries WHERE lease_until IS NOT NULL
  UNION ALL
  SELECT 'deliveries that wait', count(*) FROM webhook_deliveries WHERE state = 'pending'
  UNION ALL
  SELECT 'attempts beside the log', count(*) FROM webhook_deliveries WHERE unlogged IS NOT NULL
  UNION ALL
  SELECT 'endpoints that are due', count(*) FROM webhook_schedule WHERE urgent OR releasing OR next_due < now() - interval '1 minute'
  UNION ALL
  SELECT 'messages without an outcome', count(*) FROM chat_intents WHERE state <> 'sent'
  UNION ALL
  SELECT 'keys that are in use', count(*) FROM idempotency_keys WHERE state = 'running'
  UNION ALL
  SELECT 'giveaways that have not ended', count(*) FROM giveaways WHERE status <> 'ended'
  UNION ALL
  -- A giveaway that ended before its message was posted is not posted any more.
  SELECT 'giveaways without their message', count(*) FROM giveaways g
  WHERE message_id IS NULL AND EXISTS (SELECT FROM chat_intents i WHERE i.guild_id = g.guild_id AND i.id = g.post_id)
  UNION ALL
  SELECT 'giveaways without just one first draw', count(*) FROM giveaways g
  WHERE (SELECT count(*) FROM giveaway_draws d WHERE d.guild_id = g.guild_id AND d.giveaway_id = g.id) <> 1
  UNION ALL
  SELECT 'announcements that are tried', count(*) FROM chat_intents WHERE try_at IS NOT NULL
  UNION ALL
  SELECT 'channels that are tried', count(*) FROM tickets WHERE channel_try_at IS NOT NULL
  UNION ALL
  SELECT 'transactions', count(*) FROM pg_stat_activity
  WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start < now() - interval '10 s'
) AS counted
WHERE n > 0
