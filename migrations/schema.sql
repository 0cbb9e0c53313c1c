-- The whole database, as the migrations make it. Written by `make generate`,
-- for people and for `guildhall doctor`.

-- Tables

CREATE TABLE api_token_uses (
    token_id text COLLATE "C" NOT NULL,
    last_used_at timestamp with time zone NOT NULL,
    CONSTRAINT api_token_uses_pkey PRIMARY KEY (token_id),
    CONSTRAINT api_token_uses_token_id_fkey FOREIGN KEY (token_id) REFERENCES api_tokens(id) ON DELETE CASCADE
);

CREATE TABLE api_tokens (
    id text COLLATE "C" NOT NULL,
    guild_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    preview text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] NOT NULL,
    ip_allowlist text[] NOT NULL DEFAULT '{}'::text[],
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    revoked_at timestamp with time zone,
    rate_read text,
    rate_write text,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_hash UNIQUE (hash),
    CONSTRAINT api_tokens_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT api_tokens_hash_size CHECK ((length(hash) = 32))
);

CREATE TABLE audit_log (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now(),
    actor_type text NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    actor_name text NOT NULL,
    address text NOT NULL,
    request_id text NOT NULL,
    action text COLLATE "C" NOT NULL,
    target_id text COLLATE "C" NOT NULL,
    target_name text NOT NULL,
    before jsonb,
    after jsonb,
    CONSTRAINT audit_log_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT audit_log_actor_type CHECK ((actor_type = ANY (ARRAY['user'::text, 'operator'::text, 'command_line'::text, 'token'::text, 'bot_key'::text, 'system'::text])))
);

CREATE TABLE auth_epoch (
    sole boolean NOT NULL DEFAULT true,
    epoch bigint NOT NULL,
    CONSTRAINT auth_epoch_pkey PRIMARY KEY (sole),
    CONSTRAINT auth_epoch_sole CHECK (sole)
);

CREATE TABLE auth_nodes (
    id text COLLATE "C" NOT NULL,
    connection bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    schema_version bigint,
    CONSTRAINT auth_nodes_pkey PRIMARY KEY (id)
);

CREATE TABLE bot_key_uses (
    key_id text COLLATE "C" NOT NULL,
    last_used_at timestamp with time zone NOT NULL,
    CONSTRAINT bot_key_uses_pkey PRIMARY KEY (key_id),
    CONSTRAINT bot_key_uses_key_id_fkey FOREIGN KEY (key_id) REFERENCES bot_keys(id) ON DELETE CASCADE
);

CREATE TABLE bot_keys (
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    preview text NOT NULL,
    hash bytea NOT NULL,
    guild_ids text[],
    ip_allowlist text[] NOT NULL DEFAULT '{}'::text[],
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    revoked_at timestamp with time zone,
    CONSTRAINT bot_keys_pkey PRIMARY KEY (id),
    CONSTRAINT bot_keys_hash UNIQUE (hash),
    CONSTRAINT bot_keys_hash_size CHECK ((length(hash) = 32)),
    CONSTRAINT bot_keys_id CHECK (starts_with(id, 'bk_'::text))
);

CREATE TABLE bot_streams (
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    events text[] NOT NULL,
    echo boolean NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    fetched_at timestamp with time zone,
    fetched_by text COLLATE "C",
    complete_since timestamp with time zone,
    backfilled text COLLATE "C",
    in_sync boolean NOT NULL DEFAULT false,
    ended_at timestamp with time zone,
    CONSTRAINT bot_streams_pkey PRIMARY KEY (id)
);

CREATE TABLE bot_work (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject_id text COLLATE "C" NOT NULL,
    intent_id text COLLATE "C",
    event_id text COLLATE "C" NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline timestamp with time zone NOT NULL,
    result text,
    message_id text COLLATE "C",
    reason text,
    answered_at timestamp with time zone,
    answered_by text COLLATE "C",
    CONSTRAINT bot_work_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT bot_work_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT bot_work_result_check CHECK ((result = ANY (ARRAY['done'::text, 'refused'::text])))
);

CREATE TABLE case_changes (
    guild_id text COLLATE "C" NOT NULL,
    case_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    origin jsonb NOT NULL,
    author_id text COLLATE "C",
    changes jsonb NOT NULL,
    user_before text COLLATE "C",
    moderator_before text COLLATE "C",
    CONSTRAINT case_changes_pkey PRIMARY KEY (guild_id, case_id, at),
    CONSTRAINT case_changes_guild_id_case_id_fkey FOREIGN KEY (guild_id, case_id) REFERENCES cases(guild_id, id) ON DELETE CASCADE
);

CREATE TABLE cases (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    moderator_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    reason text NOT NULL DEFAULT ''::text,
    status text COLLATE "C" NOT NULL DEFAULT 'active'::text,
    expires_at timestamp with time zone,
    source text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT cases_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT cases_number UNIQUE (guild_id, number),
    CONSTRAINT cases_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT cases_number_positive CHECK ((number >= 1)),
    CONSTRAINT cases_reason_length CHECK ((char_length(reason) <= 1000)),
    CONSTRAINT cases_source CHECK ((source = ANY (ARRAY['api'::text, 'bot'::text, 'dashboard'::text]))),
    CONSTRAINT cases_status CHECK ((status = ANY (ARRAY['active'::text, 'expired'::text, 'revoked'::text, 'deleted'::text]))),
    CONSTRAINT cases_type CHECK ((type = ANY (ARRAY['note'::text, 'warn'::text, 'kick'::text, 'ban'::text, 'timeout'::text, 'mute'::text])))
);

CREATE TABLE chat_intents (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    subject_id text COLLATE "C" NOT NULL,
    channel_id text COLLATE "C" NOT NULL,
    reply_to text COLLATE "C",
    content text NOT NULL,
    mentions text[] NOT NULL DEFAULT '{}'::text[],
    author_id text COLLATE "C",
    token_id text COLLATE "C",
    key text COLLATE "C",
    fingerprint bytea,
    nonce text COLLATE "C" NOT NULL,
    state text NOT NULL DEFAULT 'pending'::text,
    first_sent_at timestamp with time zone,
    message_id text COLLATE "C",
    lease_until timestamp with time zone,
    lease_gen bigint NOT NULL DEFAULT 0,
    try_at timestamp with time zone,
    tries integer NOT NULL DEFAULT 0,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT chat_intents_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT chat_intents_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT chat_intents_kind CHECK ((kind = ANY (ARRAY['ticket_message'::text, 'giveaway_started'::text, 'giveaway_resumed'::text, 'giveaway_ended'::text, 'giveaway_rerolled'::text]))),
    CONSTRAINT chat_intents_state CHECK ((state = ANY (ARRAY['pending'::text, 'sending'::text, 'sent'::text, 'refused'::text, 'unknown'::text])))
);

CREATE TABLE dashboard_links (
    guild_id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    id text COLLATE "C" NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT dashboard_links_pkey PRIMARY KEY (guild_id, hash),
    CONSTRAINT dashboard_links_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE
);

CREATE TABLE dashboard_once (
    guild_id text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    made_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT dashboard_once_pkey PRIMARY KEY (guild_id, key)
);

CREATE TABLE dashboard_sessions (
    hash text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    address text NOT NULL,
    agent text NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    seen_at timestamp with time zone NOT NULL DEFAULT now(),
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT dashboard_sessions_pkey PRIMARY KEY (hash)
);

CREATE TABLE facts_turn (
    single boolean NOT NULL DEFAULT true,
    next_at timestamp with time zone NOT NULL,
    CONSTRAINT facts_turn_pkey PRIMARY KEY (single),
    CONSTRAINT facts_turn_single CHECK (single)
);

CREATE TABLE forgotten_members (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    cases boolean NOT NULL,
    by_id text COLLATE "C",
    requested_at timestamp with time zone NOT NULL,
    CONSTRAINT forgotten_members_pkey PRIMARY KEY (guild_id, id)
);

CREATE TABLE giveaway_disqualified (
    guild_id text COLLATE "C" NOT NULL,
    giveaway_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    disqualified_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT giveaway_disqualified_pkey PRIMARY KEY (guild_id, giveaway_id, user_id),
    CONSTRAINT giveaway_disqualified_guild_id_giveaway_id_fkey FOREIGN KEY (guild_id, giveaway_id) REFERENCES giveaways(guild_id, id) ON DELETE CASCADE
);

CREATE TABLE giveaway_draws (
    guild_id text COLLATE "C" NOT NULL,
    giveaway_id text COLLATE "C" NOT NULL,
    round integer NOT NULL,
    seed bytea NOT NULL,
    entries_hash bytea NOT NULL,
    entry_count bigint NOT NULL,
    excluded text[] NOT NULL,
    drawn text[] NOT NULL,
    replaced text[] NOT NULL,
    token_id text COLLATE "C",
    reason text,
    drawn_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT giveaway_draws_pkey PRIMARY KEY (guild_id, giveaway_id, round),
    CONSTRAINT giveaway_draws_guild_id_giveaway_id_fkey FOREIGN KEY (guild_id, giveaway_id) REFERENCES giveaways(guild_id, id) ON DELETE CASCADE,
    CONSTRAINT giveaway_draws_entries_hash CHECK ((octet_length(entries_hash) = 32)),
    CONSTRAINT giveaway_draws_entry_count CHECK (((entry_count >= 0) AND (entry_count <= '9007199254740991'::bigint))),
    CONSTRAINT giveaway_draws_round CHECK (((round >= 1) AND (round <= 1000))),
    CONSTRAINT giveaway_draws_seed CHECK ((octet_length(seed) = 32))
);

CREATE TABLE giveaway_entries (
    guild_id text COLLATE "C" NOT NULL,
    giveaway_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    entries bigint NOT NULL DEFAULT 1,
    entered_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT giveaway_entries_pkey PRIMARY KEY (guild_id, giveaway_id, user_id),
    CONSTRAINT giveaway_entries_entries CHECK (((entries >= 1) AND (entries <= '9007199254740991'::bigint)))
);

CREATE TABLE giveaways (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    source text NOT NULL DEFAULT 'bot'::text,
    bot_run boolean NOT NULL DEFAULT false,
    status text COLLATE "C" NOT NULL,
    prize text NOT NULL,
    description text,
    winner_count integer NOT NULL,
    entrant_count bigint NOT NULL DEFAULT 0,
    entry_count bigint NOT NULL DEFAULT 0,
    winners text[] NOT NULL DEFAULT '{}'::text[],
    host_id text COLLATE "C",
    channel_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C",
    post_id text COLLATE "C",
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    starts_at timestamp with time zone NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    paused_at timestamp with time zone,
    ended_at timestamp with time zone,
    ended_by_token_id text COLLATE "C",
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    pot text NOT NULL DEFAULT 'open'::text,
    drawing_at timestamp with time zone,
    redraw_at timestamp with time zone NOT NULL DEFAULT now(),
    rounds integer NOT NULL DEFAULT 0,
    reaction_after text COLLATE "C" NOT NULL DEFAULT ''::text,
    reaction_count bigint NOT NULL DEFAULT 0,
    reactions_missed boolean NOT NULL DEFAULT false,
    react_at timestamp with time zone,
    failures integer NOT NULL DEFAULT 0,
    edit_at timestamp with time zone,
    edit_failures integer NOT NULL DEFAULT 0,
    edited_at timestamp with time zone,
    shown bytea,
    post_problem text,
    CONSTRAINT giveaways_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT giveaways_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT giveaways_description_length CHECK ((char_length(description) <= 1000)),
    CONSTRAINT giveaways_entry_count CHECK (((entry_count >= 0) AND (entry_count <= '9007199254740991'::bigint))),
    CONSTRAINT giveaways_post_problem CHECK ((post_problem = ANY (ARRAY['deleted'::text, 'no_channel'::text, 'forbidden'::text, 'failed'::text]))),
    CONSTRAINT giveaways_pot CHECK ((pot = ANY (ARRAY['open'::text, 'gathering'::text, 'frozen'::text]))),
    CONSTRAINT giveaways_prize_length CHECK (((char_length(prize) >= 1) AND (char_length(prize) <= 200))),
    CONSTRAINT giveaways_source CHECK ((source = ANY (ARRAY['api'::text, 'bot'::text]))),
    CONSTRAINT giveaways_status CHECK ((status = ANY (ARRAY['scheduled'::text, 'active'::text, 'paused'::text, 'drawing'::text, 'ended'::text, 'cancelled'::text]))),
    CONSTRAINT giveaways_winner_count CHECK (((winner_count >= 1) AND (winner_count <= 100)))
) WITH (fillfactor=85);

CREATE TABLE guild_settings (
    guild_id text COLLATE "C" NOT NULL,
    moderation boolean NOT NULL DEFAULT true,
    economy boolean NOT NULL DEFAULT true,
    levelling boolean NOT NULL DEFAULT true,
    tickets boolean NOT NULL DEFAULT true,
    giveaways boolean NOT NULL DEFAULT true,
    network boolean NOT NULL DEFAULT true,
    currency_name text NOT NULL DEFAULT 'coins'::text,
    currency_symbol text NOT NULL DEFAULT '🪙'::text,
    require_close_reason boolean NOT NULL DEFAULT false,
    close_action text NOT NULL DEFAULT 'archive'::text,
    timezone text NOT NULL DEFAULT 'UTC'::text,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    xp_periods boolean NOT NULL DEFAULT false,
    CONSTRAINT guild_settings_pkey PRIMARY KEY (guild_id),
    CONSTRAINT guild_settings_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT guild_settings_close_action CHECK ((close_action = ANY (ARRAY['archive'::text, 'delete'::text])))
);

CREATE TABLE guilds (
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    icon_url text,
    owner_id text COLLATE "C" NOT NULL,
    member_count bigint NOT NULL DEFAULT 0,
    locale text NOT NULL DEFAULT 'en-US'::text,
    joined_at timestamp with time zone NOT NULL DEFAULT now(),
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    last_case bigint NOT NULL DEFAULT 0,
    last_ticket bigint NOT NULL DEFAULT 0,
    last_case_at timestamp with time zone,
    removed_at timestamp with time zone,
    removed_after timestamp with time zone,
    facts_due_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
    CONSTRAINT guilds_pkey PRIMARY KEY (id),
    CONSTRAINT guilds_removed CHECK (((removed_at IS NULL) = (removed_after IS NULL)))
);

CREATE TABLE idempotency_keys (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    state text NOT NULL DEFAULT 'running'::text,
    status integer,
    location text,
    retry_after text,
    body bytea,
    entry_id text COLLATE "C",
    entry_at timestamp with time zone,
    xp_of text COLLATE "C",
    xp_before bigint,
    xp_after bigint,
    lease_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (guild_id, token_id, key),
    CONSTRAINT idempotency_keys_answered CHECK (((state = 'running'::text) OR ((status IS NOT NULL) AND ((body IS NOT NULL) OR ((entry_at IS NOT NULL) AND ((entry_id IS NOT NULL) OR ((xp_of IS NOT NULL) AND (xp_before IS NOT NULL) AND (xp_after IS NOT NULL)))))))),
    CONSTRAINT idempotency_keys_state CHECK ((state = ANY (ARRAY['running'::text, 'done'::text])))
);

CREATE TABLE ledger_entries (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    delta bigint NOT NULL,
    balance_after bigint NOT NULL,
    reason text,
    note text NOT NULL,
    reference text COLLATE "C",
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    author_id text COLLATE "C",
    counterparty_id text COLLATE "C",
    CONSTRAINT ledger_entries_pkey PRIMARY KEY (guild_id, created_at, id)
);

CREATE TABLE ledger_references (
    guild_id text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C",
    CONSTRAINT ledger_references_pkey PRIMARY KEY (guild_id, reference),
    CONSTRAINT ledger_references_length CHECK (((char_length(reference) >= 1) AND (char_length(reference) <= 128)))
);

CREATE TABLE levels (
    guild_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    total_xp bigint NOT NULL,
    previous_xp bigint NOT NULL DEFAULT 0,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT levels_pkey PRIMARY KEY (guild_id, user_id),
    CONSTRAINT levels_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT levels_not_negative CHECK ((total_xp >= 0)),
    CONSTRAINT levels_within_limit CHECK ((total_xp <= '9007199254740991'::bigint))
) WITH (fillfactor=85);

CREATE TABLE members (
    guild_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name text,
    folded text COLLATE "C",
    avatar_url text,
    joined_at timestamp with time zone,
    left_at timestamp with time zone,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT members_pkey PRIMARY KEY (guild_id, user_id),
    CONSTRAINT members_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE
);

CREATE TABLE network_listings (
    user_id text COLLATE "C" NOT NULL,
    trust_score integer NOT NULL,
    report_count bigint NOT NULL,
    category text NOT NULL,
    severity text NOT NULL,
    first_reported_at timestamp with time zone NOT NULL,
    last_reported_at timestamp with time zone NOT NULL,
    CONSTRAINT network_listings_pkey PRIMARY KEY (user_id),
    CONSTRAINT network_listings_report_count CHECK ((report_count >= 0)),
    CONSTRAINT network_listings_severity CHECK ((severity = ANY (ARRAY['low'::text, 'medium'::text, 'high'::text, 'critical'::text]))),
    CONSTRAINT network_listings_trust_score CHECK (((trust_score >= 0) AND (trust_score <= 100)))
);

CREATE TABLE oldest_program (
    single boolean NOT NULL DEFAULT true,
    schema_version bigint NOT NULL,
    CONSTRAINT oldest_program_pkey PRIMARY KEY (single),
    CONSTRAINT oldest_program_single CHECK (single)
);

CREATE TABLE rank_checkpoints (
    guild_id text COLLATE "C" NOT NULL,
    board text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    number integer NOT NULL,
    depth bigint NOT NULL,
    length integer NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    CONSTRAINT rank_checkpoints_pkey PRIMARY KEY (guild_id, board, version, number),
    CONSTRAINT rank_checkpoints_guild_id_board_version_fkey FOREIGN KEY (guild_id, board, version) REFERENCES rank_indexes(guild_id, board, version) ON DELETE CASCADE
);

CREATE TABLE rank_indexes (
    guild_id text COLLATE "C" NOT NULL,
    board text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    state text NOT NULL DEFAULT 'draft'::text,
    awaited text[],
    ahead bigint[] NOT NULL DEFAULT '{}'::bigint[],
    CONSTRAINT rank_indexes_pkey PRIMARY KEY (guild_id, board, version),
    CONSTRAINT rank_indexes_one UNIQUE (guild_id, board, state),
    CONSTRAINT rank_indexes_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT rank_indexes_board CHECK ((board = ANY (ARRAY['wallets'::text, 'levels'::text]))),
    CONSTRAINT rank_indexes_state CHECK ((state = ANY (ARRAY['draft'::text, 'live'::text])))
);

CREATE TABLE rank_moves (
    guild_id text COLLATE "C" NOT NULL,
    board text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    was bigint,
    is_now bigint
);

CREATE TABLE rank_requests (
    guild_id text COLLATE "C" NOT NULL,
    board text COLLATE "C" NOT NULL,
    CONSTRAINT rank_requests_board CHECK ((board = ANY (ARRAY['wallets'::text, 'levels'::text])))
);

CREATE TABLE secret_key_check (
    single boolean NOT NULL DEFAULT true,
    sealed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT secret_key_check_pkey PRIMARY KEY (single),
    CONSTRAINT secret_key_check_single CHECK (single)
);

CREATE TABLE stream_deliveries (
    guild_id text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    event_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    fetched boolean NOT NULL DEFAULT false,
    CONSTRAINT stream_deliveries_pkey PRIMARY KEY (guild_id, stream_id, event_id)
) WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=500, autovacuum_analyze_scale_factor=0.05);

CREATE TABLE stream_listeners (
    guild_id text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    events text[] NOT NULL,
    echo boolean NOT NULL,
    CONSTRAINT stream_listeners_pkey PRIMARY KEY (guild_id, stream_id)
);

CREATE TABLE ticket_messages (
    guild_id text COLLATE "C" NOT NULL,
    ticket_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL DEFAULT 'message'::text,
    internal boolean NOT NULL DEFAULT false,
    author_id text COLLATE "C",
    author_type text NOT NULL,
    content text NOT NULL,
    channel_message_id text COLLATE "C",
    posted boolean NOT NULL DEFAULT false,
    attachments jsonb NOT NULL DEFAULT '[]'::jsonb,
    edited_at timestamp with time zone,
    deleted_at timestamp with time zone,
    original_content text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT ticket_messages_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT ticket_messages_guild_id_ticket_id_fkey FOREIGN KEY (guild_id, ticket_id) REFERENCES tickets(guild_id, id) ON DELETE CASCADE,
    CONSTRAINT ticket_messages_author_type CHECK ((author_type = ANY (ARRAY['opener'::text, 'staff'::text, 'bot'::text, 'system'::text]))),
    CONSTRAINT ticket_messages_internal CHECK ((internal = (kind = 'note'::text))),
    CONSTRAINT ticket_messages_kind CHECK ((kind = ANY (ARRAY['message'::text, 'note'::text, 'open'::text, 'close'::text, 'claim'::text, 'assign'::text, 'reopen'::text])))
);

CREATE TABLE tickets (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    status text NOT NULL DEFAULT 'open'::text,
    subject text,
    opener_id text COLLATE "C" NOT NULL,
    claimed_by_id text COLLATE "C",
    channel_id text COLLATE "C",
    close_reason text,
    closed_by_id text COLLATE "C",
    message_count bigint NOT NULL DEFAULT 0,
    last_message_at timestamp with time zone,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    closed_at timestamp with time zone,
    category text,
    priority text NOT NULL DEFAULT 'normal'::text,
    channel_due_at timestamp with time zone,
    channel_try_at timestamp with time zone,
    channel_tries integer NOT NULL DEFAULT 0,
    channel_lease_until timestamp with time zone,
    channel_lease_gen bigint NOT NULL DEFAULT 0,
    channel_lock jsonb,
    CONSTRAINT tickets_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT tickets_number UNIQUE (guild_id, number),
    CONSTRAINT tickets_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT tickets_closed CHECK (((status = 'closed'::text) = (closed_at IS NOT NULL))),
    CONSTRAINT tickets_priority CHECK ((priority = ANY (ARRAY['low'::text, 'normal'::text, 'high'::text, 'urgent'::text]))),
    CONSTRAINT tickets_status CHECK ((status = ANY (ARRAY['open'::text, 'closed'::text])))
);

CREATE TABLE token_notices (
    token_id text COLLATE "C" NOT NULL,
    days integer NOT NULL,
    CONSTRAINT token_notices_pkey PRIMARY KEY (token_id, days),
    CONSTRAINT token_notices_token_id_fkey FOREIGN KEY (token_id) REFERENCES api_tokens(id) ON DELETE CASCADE
);

CREATE TABLE usage_addresses (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    day date NOT NULL,
    address text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    CONSTRAINT usage_addresses_pkey PRIMARY KEY (guild_id, token_id, day, address)
);

CREATE TABLE usage_days (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    day date NOT NULL,
    operation text COLLATE "C" NOT NULL,
    class smallint NOT NULL,
    requests bigint NOT NULL,
    CONSTRAINT usage_days_pkey PRIMARY KEY (guild_id, token_id, day, operation, class)
);

CREATE TABLE usage_ended (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    first_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    CONSTRAINT usage_ended_pkey PRIMARY KEY (guild_id, token_id, address)
);

CREATE TABLE usage_hours (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    hour timestamp with time zone NOT NULL,
    operation text COLLATE "C" NOT NULL,
    class smallint NOT NULL,
    requests bigint NOT NULL,
    CONSTRAINT usage_hours_pkey PRIMARY KEY (guild_id, token_id, hour, operation, class)
);

CREATE TABLE usage_refusals (
    guild_id text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    status smallint NOT NULL,
    code text COLLATE "C" NOT NULL,
    address text NOT NULL,
    message text NOT NULL DEFAULT ''::text,
    required_scope text NOT NULL DEFAULT ''::text,
    CONSTRAINT usage_refusals_pkey PRIMARY KEY (guild_id, request_id)
);

CREATE TABLE usage_totals (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    hour timestamp with time zone NOT NULL,
    class smallint NOT NULL,
    requests bigint NOT NULL,
    CONSTRAINT usage_totals_pkey PRIMARY KEY (guild_id, token_id, hour, class)
);

CREATE TABLE wallets (
    guild_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    balance bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT wallets_pkey PRIMARY KEY (guild_id, user_id),
    CONSTRAINT wallets_not_negative CHECK ((balance >= 0)),
    CONSTRAINT wallets_within_limit CHECK ((balance <= '9007199254740991'::bigint))
) WITH (fillfactor=85);

CREATE TABLE webhook_attempts (
    guild_id text COLLATE "C" NOT NULL,
    delivery_id text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    duration_ms integer NOT NULL,
    outcome text NOT NULL,
    status integer,
    excerpt text,
    error text,
    CONSTRAINT webhook_attempts_pkey PRIMARY KEY (guild_id, delivery_id, number)
);

CREATE TABLE webhook_deliveries (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL DEFAULT ((encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid)::text,
    endpoint_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    event_type text,
    event_at timestamp with time zone DEFAULT now(),
    cause text NOT NULL DEFAULT 'event'::text,
    state text NOT NULL DEFAULT 'pending'::text,
    fresh boolean NOT NULL DEFAULT true,
    urgent boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    step integer NOT NULL DEFAULT 0,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    lease_until timestamp with time zone,
    lease_gen integer NOT NULL DEFAULT 0,
    unlogged jsonb,
    response_class text,
    error text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    completed_at timestamp with time zone,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT webhook_deliveries_cause CHECK ((cause = ANY (ARRAY['event'::text, 'redelivery'::text, 'test'::text]))),
    CONSTRAINT webhook_deliveries_response_class CHECK ((response_class = ANY (ARRAY['2xx'::text, '3xx'::text, '4xx'::text, '5xx'::text, 'none'::text]))),
    CONSTRAINT webhook_deliveries_state CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text, 'held'::text])))
) WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=500, autovacuum_analyze_scale_factor=0.05);

CREATE TABLE webhook_endpoints (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    delivery text NOT NULL DEFAULT 'push'::text,
    url text NOT NULL,
    description text,
    events text[] NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    disabled_reason text,
    secret bytea NOT NULL,
    secret_preview text NOT NULL,
    old_secrets jsonb NOT NULL DEFAULT '[]'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (guild_id, id),
    CONSTRAINT webhook_endpoints_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT webhook_endpoints_delivery CHECK ((delivery = ANY (ARRAY['push'::text, 'pull'::text])))
);

CREATE TABLE webhook_events (
    guild_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text NOT NULL,
    occurred_at timestamp with time zone NOT NULL DEFAULT now(),
    payload bytea NOT NULL,
    trace text,
    CONSTRAINT webhook_events_pkey PRIMARY KEY (guild_id, id)
);

CREATE TABLE webhook_hours (
    guild_id text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    hour timestamp with time zone NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    deliveries bigint NOT NULL,
    last_at timestamp with time zone,
    failed_attempts bigint NOT NULL DEFAULT 0,
    CONSTRAINT webhook_hours_pkey PRIMARY KEY (guild_id, endpoint_id, hour, outcome),
    CONSTRAINT webhook_hours_outcome CHECK ((outcome = ANY (ARRAY['delivered'::text, 'failed'::text, 'open'::text])))
) WITH (fillfactor=50);

CREATE TABLE webhook_schedule (
    guild_id text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    disposition text NOT NULL DEFAULT 'send'::text,
    releasing boolean NOT NULL DEFAULT false,
    urgent boolean NOT NULL DEFAULT false,
    next_due timestamp with time zone,
    failures integer NOT NULL DEFAULT 0,
    refusals integer NOT NULL DEFAULT 0,
    refused_at timestamp with time zone,
    blocks integer NOT NULL DEFAULT 0,
    blocked_until timestamp with time zone,
    quiet_until timestamp with time zone,
    failing_since timestamp with time zone,
    failed_attempts integer NOT NULL DEFAULT 0,
    warned smallint NOT NULL DEFAULT 0,
    reported boolean NOT NULL DEFAULT false,
    reported_at timestamp with time zone,
    last_failure jsonb,
    health_since timestamp with time zone,
    overflowed_at timestamp with time zone,
    not_before timestamp with time zone GENERATED ALWAYS AS (GREATEST(blocked_until, quiet_until)) STORED,
    lane smallint NOT NULL GENERATED ALWAYS AS (
CASE
    WHEN urgent THEN 0
    WHEN (disposition <> 'send'::text) THEN 4
    WHEN (failing_since IS NULL) THEN 1
    WHEN (blocks = 0) THEN 2
    ELSE 3
END) STORED,
    recovered_at timestamp with time zone,
    recovered_passes boolean NOT NULL DEFAULT false,
    fetched_at timestamp with time zone,
    fetched_by text,
    complete_since timestamp with time zone,
    CONSTRAINT webhook_schedule_pkey PRIMARY KEY (guild_id, endpoint_id),
    CONSTRAINT webhook_schedule_disposition CHECK ((disposition = ANY (ARRAY['send'::text, 'pull'::text, 'hold'::text, 'drop'::text])))
) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_threshold=500);

CREATE TABLE xp_moves (
    guild_id text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL,
    timezone text NOT NULL,
    users text[] NOT NULL,
    deltas bigint[] NOT NULL
);

CREATE TABLE xp_periods (
    guild_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    starts date NOT NULL,
    xp bigint NOT NULL,
    kept_until date NOT NULL,
    CONSTRAINT xp_periods_pkey PRIMARY KEY (guild_id, user_id, kind, starts),
    CONSTRAINT xp_periods_guild_id_fkey FOREIGN KEY (guild_id) REFERENCES guilds(id) ON DELETE CASCADE,
    CONSTRAINT xp_periods_kind CHECK ((kind = ANY (ARRAY['week'::text, 'month'::text]))),
    CONSTRAINT xp_periods_within_limit CHECK (((xp >= '-9007199254740991'::bigint) AND (xp <= '9007199254740991'::bigint)))
) WITH (fillfactor=85);


-- Indexes

CREATE INDEX api_tokens_expiring ON public.api_tokens USING btree (expires_at) WHERE ((revoked_at IS NULL) AND (expires_at IS NOT NULL));
CREATE INDEX api_tokens_guild ON public.api_tokens USING btree (guild_id, created_at, id);
CREATE INDEX api_tokens_working ON public.api_tokens USING btree (guild_id, COALESCE(expires_at, 'infinity'::timestamp with time zone)) WHERE (revoked_at IS NULL);
CREATE INDEX audit_log_action ON public.audit_log USING btree (guild_id, action, id);
CREATE INDEX audit_log_actor ON public.audit_log USING btree (guild_id, actor_id, id);
CREATE INDEX audit_log_age ON public.audit_log USING btree (at);
CREATE INDEX audit_log_changes ON public.audit_log USING btree (guild_id, id) WHERE (action <> ALL (ARRAY['dashboard.link_used'::text, 'dashboard.signed_in'::text, 'dashboard.signed_out'::text, 'dashboard.session_ended'::text]));
CREATE INDEX audit_log_target ON public.audit_log USING btree (guild_id, target_id, id);
CREATE INDEX bot_keys_every_guild ON public.bot_keys USING btree (created_at, id) WHERE (guild_ids IS NULL);
CREATE INDEX bot_keys_guilds ON public.bot_keys USING gin (guild_ids);
CREATE UNIQUE INDEX bot_streams_name ON public.bot_streams USING btree (name) WHERE (ended_at IS NULL);
CREATE INDEX bot_work_age ON public.bot_work USING btree (created_at);
CREATE INDEX bot_work_answer ON public.bot_work USING btree (id);
CREATE INDEX bot_work_due ON public.bot_work USING btree (deadline) WHERE (result IS NULL);
CREATE INDEX bot_work_open ON public.bot_work USING btree (guild_id, subject_id) WHERE (result IS NULL);
CREATE INDEX case_changes_of_author ON public.case_changes USING btree (guild_id, author_id) WHERE (author_id IS NOT NULL);
CREATE INDEX case_changes_of_moderator ON public.case_changes USING btree (guild_id, moderator_before) WHERE (moderator_before IS NOT NULL);
CREATE INDEX case_changes_of_user ON public.case_changes USING btree (guild_id, user_before) WHERE (user_before IS NOT NULL);
CREATE INDEX cases_by_status ON public.cases USING btree (guild_id, status, created_at DESC, id DESC);
CREATE INDEX cases_by_type ON public.cases USING btree (guild_id, type, created_at DESC, id DESC);
CREATE INDEX cases_by_type_status ON public.cases USING btree (guild_id, type, status, created_at DESC, id DESC);
CREATE INDEX cases_changed ON public.cases USING btree (guild_id, updated_at, id);
CREATE INDEX cases_due ON public.cases USING btree (expires_at) WHERE ((status = 'active'::text) AND (expires_at IS NOT NULL));
CREATE INDEX cases_metadata ON public.cases USING gin (jsonb_set('{}'::jsonb, ARRAY[guild_id], metadata) jsonb_path_ops) WITH (fastupdate=off) WHERE (metadata <> '{}'::jsonb);
CREATE INDEX cases_newest ON public.cases USING btree (guild_id, created_at DESC, id DESC);
CREATE INDEX cases_of_moderator ON public.cases USING btree (guild_id, moderator_id, created_at DESC, id DESC) INCLUDE (type, status);
CREATE INDEX cases_of_user ON public.cases USING btree (guild_id, user_id, created_at DESC, id DESC) INCLUDE (type, status, moderator_id);
CREATE INDEX chat_intents_age ON public.chat_intents USING btree (created_at);
CREATE INDEX chat_intents_author ON public.chat_intents USING btree (guild_id, author_id) WHERE (author_id IS NOT NULL);
CREATE INDEX chat_intents_key ON public.chat_intents USING btree (token_id, key) WHERE (key IS NOT NULL);
CREATE INDEX chat_intents_posted ON public.chat_intents USING btree (channel_id, message_id) WHERE (message_id IS NOT NULL);
CREATE INDEX chat_intents_to_try ON public.chat_intents USING btree (guild_id, try_at) WHERE (try_at IS NOT NULL);
CREATE INDEX chat_intents_unsettled ON public.chat_intents USING btree (created_at) WHERE (state = ANY (ARRAY['pending'::text, 'sending'::text]));
CREATE INDEX dashboard_links_expiry ON public.dashboard_links USING btree (expires_at);
CREATE INDEX dashboard_once_age ON public.dashboard_once USING btree (made_at);
CREATE INDEX dashboard_sessions_account ON public.dashboard_sessions USING btree (account, created_at, id);
CREATE INDEX dashboard_sessions_expiry ON public.dashboard_sessions USING btree (expires_at);
CREATE INDEX dashboard_sessions_id ON public.dashboard_sessions USING btree (id);
CREATE INDEX forgotten_members_age ON public.forgotten_members USING btree (requested_at);
CREATE INDEX giveaway_disqualified_user ON public.giveaway_disqualified USING btree (guild_id, user_id);
CREATE INDEX giveaway_entries_oldest ON public.giveaway_entries USING btree (guild_id, giveaway_id, entered_at, length(user_id), user_id);
CREATE INDEX giveaways_by_status ON public.giveaways USING btree (guild_id, status, created_at DESC, id DESC);
CREATE INDEX giveaways_changed ON public.giveaways USING btree (guild_id, updated_at, id);
CREATE INDEX giveaways_changed_by_status ON public.giveaways USING btree (guild_id, status, updated_at, id);
CREATE INDEX giveaways_drawing ON public.giveaways USING btree (redraw_at) WHERE (status = 'drawing'::text);
CREATE INDEX giveaways_ending ON public.giveaways USING btree (ends_at) WHERE (status = 'active'::text);
CREATE INDEX giveaways_metadata ON public.giveaways USING gin (jsonb_set('{}'::jsonb, ARRAY[guild_id], metadata) jsonb_path_ops) WITH (fastupdate=off) WHERE (metadata <> '{}'::jsonb);
CREATE INDEX giveaways_newest ON public.giveaways USING btree (guild_id, created_at DESC, id DESC);
CREATE INDEX giveaways_starting ON public.giveaways USING btree (starts_at) WHERE (status = 'scheduled'::text);
CREATE INDEX giveaways_to_draw ON public.giveaways USING btree (guild_id, redraw_at) WHERE ((status = 'drawing'::text) AND (pot <> 'gathering'::text));
CREATE INDEX giveaways_to_edit ON public.giveaways USING btree (guild_id, edit_at) WHERE (edit_at IS NOT NULL);
CREATE INDEX giveaways_to_gather ON public.giveaways USING btree (guild_id, redraw_at) WHERE ((status = 'drawing'::text) AND (pot = 'gathering'::text));
CREATE INDEX giveaways_to_react ON public.giveaways USING btree (guild_id, react_at) WHERE (react_at IS NOT NULL);
CREATE INDEX guild_settings_xp_periods ON public.guild_settings USING btree (guild_id) INCLUDE (timezone) WHERE xp_periods;
CREATE INDEX guilds_changed ON public.guilds USING btree (updated_at, id);
CREATE INDEX guilds_facts_due ON public.guilds USING btree (facts_due_at, id) WHERE (removed_at IS NULL);
CREATE INDEX guilds_leaving ON public.guilds USING btree (removed_after) WHERE (removed_after IS NOT NULL);
CREATE INDEX idempotency_keys_age ON public.idempotency_keys USING btree (created_at);
CREATE INDEX ledger_entries_author ON public.ledger_entries USING btree (guild_id, author_id) WHERE (author_id IS NOT NULL);
CREATE INDEX ledger_entries_by_user ON public.ledger_entries USING btree (guild_id, user_id, created_at DESC, id DESC);
CREATE INDEX ledger_entries_counterparty ON public.ledger_entries USING btree (guild_id, counterparty_id) WHERE (counterparty_id IS NOT NULL);
CREATE INDEX ledger_entries_reference ON public.ledger_entries USING btree (guild_id, reference) WHERE (reference IS NOT NULL);
CREATE INDEX levels_ranked ON public.levels USING btree (guild_id, ((- total_xp)), length(user_id), user_id) INCLUDE (total_xp);
CREATE INDEX members_changed ON public.members USING btree (guild_id, updated_at, user_id);
CREATE INDEX members_left ON public.members USING btree (guild_id, user_id) WHERE ((left_at IS NOT NULL) AND ((joined_at IS NULL) OR (joined_at < left_at)));
CREATE INDEX members_metadata ON public.members USING gin (jsonb_set('{}'::jsonb, ARRAY[guild_id], metadata) jsonb_path_ops) WITH (fastupdate=off) WHERE (metadata <> '{}'::jsonb);
CREATE INDEX members_named ON public.members USING btree (guild_id, folded, user_id) WHERE (folded IS NOT NULL);
CREATE INDEX rank_checkpoints_place ON public.rank_checkpoints USING btree (guild_id, board, version, depth, length, user_id);
CREATE INDEX rank_indexes_drafts ON public.rank_indexes USING btree (guild_id, board) WHERE (state = 'draft'::text);
CREATE INDEX rank_moves_map ON public.rank_moves USING btree (guild_id, board, version);
CREATE INDEX rank_requests_board ON public.rank_requests USING btree (guild_id, board);
CREATE INDEX stream_deliveries_age ON public.stream_deliveries USING btree (event_at);
CREATE INDEX stream_deliveries_due ON public.stream_deliveries USING btree (stream_id, due_at, guild_id, event_id);
CREATE INDEX stream_deliveries_guild ON public.stream_deliveries USING btree (stream_id, guild_id, due_at, event_id);
CREATE INDEX stream_deliveries_of_event ON public.stream_deliveries USING btree (event_id, guild_id);
CREATE INDEX stream_listeners_stream ON public.stream_listeners USING btree (stream_id, guild_id);
CREATE INDEX ticket_messages_author ON public.ticket_messages USING btree (guild_id, author_id) WHERE (author_id IS NOT NULL);
CREATE INDEX ticket_messages_of_channel ON public.ticket_messages USING btree (guild_id, channel_message_id) WHERE (channel_message_id IS NOT NULL);
CREATE INDEX ticket_messages_reading ON public.ticket_messages USING btree (guild_id, ticket_id, created_at, id);
CREATE INDEX tickets_active ON public.tickets USING btree (guild_id, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
CREATE INDEX tickets_active_by_status ON public.tickets USING btree (guild_id, status, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
CREATE INDEX tickets_by_status ON public.tickets USING btree (guild_id, status, created_at DESC, id DESC);
CREATE INDEX tickets_changed ON public.tickets USING btree (guild_id, updated_at, id);
CREATE INDEX tickets_metadata ON public.tickets USING gin (jsonb_set('{}'::jsonb, ARRAY[guild_id], metadata) jsonb_path_ops) WITH (fastupdate=off) WHERE (metadata <> '{}'::jsonb);
CREATE INDEX tickets_newest ON public.tickets USING btree (guild_id, created_at DESC, id DESC);
CREATE INDEX tickets_of_category ON public.tickets USING btree (guild_id, category, created_at DESC, id DESC) INCLUDE (status, priority, claimed_by_id, opener_id) WHERE (category IS NOT NULL);
CREATE INDEX tickets_of_channel ON public.tickets USING btree (guild_id, channel_id) WHERE (channel_id IS NOT NULL);
CREATE INDEX tickets_of_claim ON public.tickets USING btree (guild_id, claimed_by_id, created_at DESC, id DESC) INCLUDE (status) WHERE (claimed_by_id IS NOT NULL);
CREATE INDEX tickets_of_opener ON public.tickets USING btree (guild_id, opener_id, created_at DESC, id DESC) INCLUDE (status, claimed_by_id);
CREATE INDEX tickets_of_priority ON public.tickets USING btree (guild_id, priority, created_at DESC, id DESC) INCLUDE (status, claimed_by_id, opener_id);
CREATE UNIQUE INDEX tickets_open_channel ON public.tickets USING btree (guild_id, channel_id) WHERE (status = 'open'::text);
CREATE INDEX tickets_to_follow ON public.tickets USING btree (guild_id, channel_try_at) WHERE (channel_try_at IS NOT NULL);
CREATE INDEX tickets_unclaimed ON public.tickets USING btree (guild_id, created_at DESC, id DESC) WHERE (claimed_by_id IS NULL);
CREATE INDEX tickets_unclaimed_by_status ON public.tickets USING btree (guild_id, status, created_at DESC, id DESC) WHERE (claimed_by_id IS NULL);
CREATE INDEX usage_addresses_age ON public.usage_addresses USING btree (day);
CREATE INDEX usage_days_age ON public.usage_days USING btree (day);
CREATE INDEX usage_ended_age ON public.usage_ended USING btree (seen_at);
CREATE INDEX usage_ended_newest ON public.usage_ended USING btree (guild_id, seen_at);
CREATE INDEX usage_hours_age ON public.usage_hours USING btree (hour);
CREATE INDEX usage_refusals_age ON public.usage_refusals USING btree (at);
CREATE INDEX usage_refusals_token ON public.usage_refusals USING btree (guild_id, token_id, request_id);
CREATE INDEX usage_totals_age ON public.usage_totals USING btree (hour);
CREATE INDEX wallets_ranked ON public.wallets USING btree (guild_id, ((- balance)), length(user_id), user_id) INCLUDE (balance);
CREATE INDEX webhook_attempts_age ON public.webhook_attempts USING btree (started_at);
CREATE INDEX webhook_deliveries_class ON public.webhook_deliveries USING btree (guild_id, endpoint_id, response_class, created_at, id) WHERE (response_class <> '2xx'::text);
CREATE INDEX webhook_deliveries_event ON public.webhook_deliveries USING btree (guild_id, event_id);
CREATE INDEX webhook_deliveries_event_age ON public.webhook_deliveries USING btree (event_at);
CREATE INDEX webhook_deliveries_failed ON public.webhook_deliveries USING btree (guild_id, endpoint_id, created_at, id) WHERE (state = 'failed'::text);
CREATE INDEX webhook_deliveries_fresh ON public.webhook_deliveries USING btree (guild_id, endpoint_id) WHERE (fresh AND (state = 'pending'::text));
CREATE INDEX webhook_deliveries_held ON public.webhook_deliveries USING btree (guild_id, endpoint_id, id) WHERE (state = 'held'::text);
CREATE INDEX webhook_deliveries_held_age ON public.webhook_deliveries USING btree (event_at) WHERE (state = 'held'::text);
CREATE INDEX webhook_deliveries_leased ON public.webhook_deliveries USING btree (lease_until) WHERE ((lease_until IS NOT NULL) AND (state = 'pending'::text));
CREATE INDEX webhook_deliveries_log ON public.webhook_deliveries USING btree (guild_id, endpoint_id, created_at, id);
CREATE INDEX webhook_deliveries_pending ON public.webhook_deliveries USING btree (guild_id, endpoint_id, due_at, id) WHERE (state = 'pending'::text);
CREATE INDEX webhook_deliveries_state_log ON public.webhook_deliveries USING btree (guild_id, endpoint_id, state, created_at, id);
CREATE INDEX webhook_deliveries_type ON public.webhook_deliveries USING btree (guild_id, endpoint_id, event_type, created_at, id);
CREATE INDEX webhook_deliveries_unlogged ON public.webhook_deliveries USING btree (guild_id, id) WHERE (unlogged IS NOT NULL);
CREATE INDEX webhook_deliveries_urgent ON public.webhook_deliveries USING btree (guild_id, endpoint_id, due_at, id) WHERE (urgent AND (state = 'pending'::text));
CREATE INDEX webhook_endpoints_by_id ON public.webhook_endpoints USING btree (id);
CREATE INDEX webhook_endpoints_disabled ON public.webhook_endpoints USING btree (guild_id) WHERE ((NOT enabled) AND (disabled_reason IS NOT NULL));
CREATE INDEX webhook_events_age ON public.webhook_events USING btree (occurred_at);
CREATE INDEX webhook_hours_age ON public.webhook_hours USING btree (hour);
CREATE INDEX webhook_schedule_due ON public.webhook_schedule USING btree (lane, next_due) WHERE (next_due IS NOT NULL);
CREATE INDEX webhook_schedule_failing ON public.webhook_schedule USING btree (failing_since) WHERE (failing_since IS NOT NULL);
CREATE INDEX webhook_schedule_fetched ON public.webhook_schedule USING btree (fetched_at) WHERE (disposition = 'pull'::text);
CREATE INDEX webhook_schedule_releasing ON public.webhook_schedule USING btree (guild_id, endpoint_id) WHERE releasing;
CREATE INDEX xp_moves_guild ON public.xp_moves USING btree (guild_id);
CREATE INDEX xp_periods_kept ON public.xp_periods USING btree (kept_until);
CREATE INDEX xp_periods_ranked ON public.xp_periods USING btree (guild_id, kind, starts, ((- xp)), length(user_id), user_id) INCLUDE (xp) WHERE (xp > 0);

-- Functions

CREATE OR REPLACE FUNCTION public.api_tokens_announce()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO '$user', 'public'
AS $function$
DECLARE
    n bigint;
BEGIN
    UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch INTO STRICT n;
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM pg_notify('guildhall_tokens', n || ' *');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(OLD.hash, 'hex'));
    END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND NEW.hash <> OLD.hash) THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(NEW.hash, 'hex'));
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION public.api_tokens_announce_updates()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO '$user', 'public'
AS $function$
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
$function$
;


-- Triggers

CREATE TRIGGER api_tokens_announce_change AFTER INSERT OR DELETE ON public.api_tokens FOR EACH ROW EXECUTE FUNCTION api_tokens_announce();
CREATE TRIGGER api_tokens_announce_truncate AFTER TRUNCATE ON public.api_tokens FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce();
CREATE TRIGGER api_tokens_announce_update AFTER UPDATE ON public.api_tokens REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce_updates();
CREATE TRIGGER bot_keys_announce_change AFTER INSERT OR DELETE ON public.bot_keys FOR EACH ROW EXECUTE FUNCTION api_tokens_announce();
CREATE TRIGGER bot_keys_announce_truncate AFTER TRUNCATE ON public.bot_keys FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce();
CREATE TRIGGER bot_keys_announce_update AFTER UPDATE ON public.bot_keys REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce_updates();
