entered AS (
	INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference, author_id, counterparty_id)
	SELECT m.guild_id /*: $9 */ /*: home.id */, m.event_id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference, m.author_id, m.counterparty_id
	FROM moved m /*: m JOIN guilds home ON home.id = m.guild_id /*: $9 */ */
), referenced AS (
	INSERT INTO ledger_references (guild_id, reference, entry_id)
	SELECT m.guild_id /*: $9 */ /*: home.id */, m.reference, m.event_id
	FROM moved m /*: m JOIN guilds home ON home.id = m.guild_id /*: $9 */ */
	WHERE m.reference IS NOT NULL
), keyed AS (
	INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, entry_id, entry_at)
	SELECT m.guild_id /*: $9 */ /*: home.id */, m.token_id, m.key, m.fingerprint, 'done', 200, m.event_id, m.updated_at
	FROM moved m /*: m JOIN guilds home ON home.id = m.guild_id /*: $9 */ */
	WHERE m.key IS NOT NULL
), :emit
SELECT number, event_id AS id, is_now AS balance_after, updated_at AS created_at
FROM moved