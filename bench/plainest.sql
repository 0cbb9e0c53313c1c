-- The tables of the plainest program: the wallets from the guild file, with only the indexes that
-- it needs.

CREATE TABLE plainest_wallets (
  guild_id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL, balance bigint NOT NULL, updated_at timestamptz NOT NULL);
INSERT INTO plainest_wallets SELECT guild_id, user_id, balance, updated_at FROM wallets;
ALTER TABLE plainest_wallets ADD PRIMARY KEY (guild_id, user_id);

CREATE TABLE plainest_ledger (
  id bigint GENERATED ALWAYS AS IDENTITY, guild_id text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL,
  delta bigint NOT NULL, balance_after bigint NOT NULL, reason text, created_at timestamptz NOT NULL);
CREATE INDEX plainest_ledger_by_user ON plainest_ledger (guild_id, user_id, id);

CREATE TABLE plainest_keys (
  token text COLLATE "C", key text COLLATE "C", answer text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (token, key));
