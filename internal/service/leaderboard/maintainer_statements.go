package leaderboard

// The statements of the Maintainer. $1 is the guild and $2 the version of the rank index, unless
// a statement says otherwise.

// isLarge reports whether the leaderboard has more than $2 rows.
const isLarge = `SELECT EXISTS (SELECT FROM :board WHERE guild_id = $1 OFFSET $2)`

// placeCheckpoints drafts a rank index with one checkpoint after each $2 rows, and one behind all
// rows, which stores the number of all rows. The positions of the checkpoints need not be exact;
// only the number of rows ahead of each must be, and that is counted later. The rows are read once,
// because a second read on a coordinator could see other rows. The version is an instant, so that
// no version is used twice.
const placeCheckpoints = `
		WITH made AS (
			INSERT INTO rank_indexes (guild_id, board, version)
			VALUES ($1, :'board', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
			ON CONFLICT DO NOTHING
			RETURNING version
		), drawn AS MATERIALIZED (
			SELECT n / $2::bigint AS number, -r.:points AS depth, length(r.user_id) AS length, r.user_id
			FROM (
				SELECT t.:points, t.user_id, row_number() OVER (ORDER BY -t.:points, length(t.user_id), t.user_id) - 1 AS n
				FROM :board t
				WHERE t.guild_id = $1
			) r
			WHERE n % $2::bigint = 0 AND n > 0
		)
		INSERT INTO rank_checkpoints (guild_id, board, version, number, depth, length, user_id)
		SELECT home.id, :'board', made.version, marks.*
		FROM guilds home, made, (
			SELECT * FROM drawn
			UNION ALL
			SELECT coalesce(max(number), 0) + 1, 9223372036854775807, 0, '' FROM drawn
		) marks
		WHERE home.id = $1`

// countRows counts the rows ahead of each checkpoint, from checkpoint to checkpoint, and puts the
// rank index into use.
const countRows = `
		UPDATE rank_indexes
		SET state = 'live', awaited = NULL, ahead = coalesce((
			SELECT array_agg(ahead ORDER BY number)
			FROM (
				SELECT w.number, sum(` + rowsBetween + `) OVER (ORDER BY w.number)::bigint AS ahead
				FROM (
					SELECT number, depth, length, user_id,
					       lag(depth, 1, -9223372036854775807) OVER marks AS from_depth, lag(length, 1, 0) OVER marks AS from_length, lag(user_id, 1, '') OVER marks AS from_user_id
					FROM rank_checkpoints
					WHERE guild_id = $1 AND board = :'board' AND version = $2
					WINDOW marks AS (ORDER BY number)
				) w
			) counted
		), '{}')
		WHERE guild_id = $1 AND board = :'board' AND version = $2`

// foldMoves adds the recorded moves of a rank index to its numbers. One statement deletes the moves
// and changes the numbers, so every reader sees a consistent state. A move changes the number of
// every checkpoint behind its position. The statement sorts the moves together with the
// checkpoints, in the order of the leaderboard, and sums them up in one pass. A lookup of the
// checkpoint before each move took four times as long, and a join compares every pair of them
// (thousands times thousands), because Postgres cannot know how many there are.
const foldMoves = `
		WITH gone AS (
			DELETE FROM rank_moves
			WHERE guild_id = $1 AND board = :'board' AND version = $2
			RETURNING user_id, was, is_now
		), summed AS (
			SELECT array_agg(change ORDER BY number) FILTER (WHERE number IS NOT NULL) AS changes
			FROM (
				SELECT number, sum(change) OVER (ORDER BY depth, length, user_id, number NULLS LAST ROWS UNBOUNDED PRECEDING)::bigint AS change
				FROM (
					SELECT k.depth, k.length, k.user_id, k.number, 0 AS change
					FROM rank_checkpoints k
					WHERE k.guild_id = $1 AND k.board = :'board' AND k.version = $2
					UNION ALL
					SELECT place.depth, length(gone.user_id), gone.user_id, NULL, place.change
					FROM gone, LATERAL (VALUES (gone.was, -1), (gone.is_now, 1)) AS place (depth, change)
					WHERE place.depth IS NOT NULL
				) line
			) ranked
		), counted AS (
			SELECT array_agg(a.was + a.change ORDER BY a.number) AS ahead
			FROM rank_indexes m, summed, unnest(m.ahead, summed.changes) WITH ORDINALITY AS a (was, change, number)
			WHERE m.guild_id = $1 AND m.board = :'board' AND m.version = $2 AND summed.changes IS NOT NULL
		)
		UPDATE rank_indexes
		SET ahead = counted.ahead
		FROM counted
		WHERE guild_id = $1 AND board = :'board' AND version = $2 AND counted.ahead IS NOT NULL`

// hasGrown reports whether there are more than $3 rows between two checkpoints, or behind the
// last checkpoint if that is not the end of the leaderboard.
const hasGrown = `
		WITH last AS MATERIALIZED (
			SELECT depth, length, user_id
			FROM rank_checkpoints
			WHERE guild_id = $1 AND board = :'board' AND version = $2
			ORDER BY number DESC
			LIMIT 1
		)
		SELECT EXISTS (
				SELECT
				FROM (SELECT n - lag(n, 1, 0::bigint) OVER (ORDER BY i) AS rows FROM unnest(m.ahead) WITH ORDINALITY AS a (n, i)) s
				WHERE rows > $3::bigint
			)
			OR EXISTS (
				SELECT
				FROM :board t
				WHERE t.guild_id = $1
				  AND (-t.:points, length(t.user_id), t.user_id) >= (coalesce((SELECT depth FROM last), -9223372036854775807), coalesce((SELECT length FROM last), 0), coalesce((SELECT user_id FROM last), ''))
				OFFSET $3
			)
		FROM rank_indexes m
		WHERE m.guild_id = $1 AND m.board = :'board' AND m.version = $2`

// readRequests reads the leaderboards that have requests, at most $3 of them, from the one after
// ($1, $2) on.
const readRequests = `
		SELECT q.guild_id, q.board, q.waiting, m.guild_id IS NOT NULL AS mapped
		FROM (
			SELECT guild_id, board, count(*) AS waiting
			FROM rank_requests
			WHERE (guild_id, board) > ($1, $2)
			GROUP BY guild_id, board
			ORDER BY guild_id, board
			LIMIT $3
		) q
		LEFT JOIN rank_indexes m ON m.guild_id = q.guild_id AND m.board = q.board AND m.state = 'live'
		ORDER BY q.guild_id, q.board`

// readMoves is hopMoves for distributed tables, where a recursive step cannot go from guild to
// guild. It reads all moves after the rank index.
const readMoves = `
		SELECT v.guild_id, v.board, v.version, m.guild_id IS NULL AS gone
		FROM (
			SELECT DISTINCT guild_id, board, version
			FROM rank_moves
			WHERE (guild_id, board, version) > ($1, $2, $3)
		) v
		LEFT JOIN rank_indexes m ON m.guild_id = v.guild_id AND m.board = v.board AND m.version = v.version
		ORDER BY v.guild_id, v.board, v.version
		LIMIT $4`

// hopMoves finds the rank indexes that have moves, at most $4 of them, from the one after
// ($1, $2, $3) on.
const hopMoves = `
		WITH RECURSIVE hop AS (
			(
				SELECT guild_id, board, version, 1 AS n
				FROM rank_moves
				WHERE (guild_id, board, version) > ($1, $2, $3)
				ORDER BY guild_id, board, version
				LIMIT 1
			)
			UNION ALL
			SELECT next.guild_id, next.board, next.version, hop.n + 1
			FROM hop
			CROSS JOIN LATERAL (
				SELECT v.guild_id, v.board, v.version
				FROM rank_moves v
				WHERE (v.guild_id, v.board, v.version) > (hop.guild_id, hop.board, hop.version)
				ORDER BY v.guild_id, v.board, v.version
				LIMIT 1
			) next
			WHERE hop.n < $4
		)
		SELECT guild_id, board, version,
		       NOT EXISTS (SELECT FROM rank_indexes m WHERE m.guild_id = hop.guild_id AND m.board = hop.board AND m.version = hop.version) AS gone
		FROM hop`
