-- +goose Up
-- Changes of one resource are told apart by their instants. So a change takes
-- its instant once it holds the row, and never one that an earlier change of the
-- row has, not even when cut to the milliseconds that callers see:
--
--     UPDATE … SET updated_at = greatest(clock_timestamp(), later(updated_at))
--
-- and in an upsert, whose SET may call nothing that looks at a clock:
--
--     INSERT … VALUES (…, clock_timestamp()) ON CONFLICT … DO UPDATE
--     SET updated_at = greatest(excluded.updated_at, later(t.updated_at))
--
-- Postgres works both out again on the row that it has waited for.
--
-- later is a millisecond after the given instant. Postgres calls the sum of an
-- instant and an interval stable, because days depend on the time zone; in UTC
-- it depends on nothing, so that an upsert and an index may use it. Without a
-- row before it is null, which greatest leaves out.
-- +goose StatementBegin
CREATE FUNCTION later(at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'
$$;
-- +goose StatementEnd

-- When the number last_case was given out: the next case is created later.
ALTER TABLE guilds ADD COLUMN last_case_at timestamptz;
