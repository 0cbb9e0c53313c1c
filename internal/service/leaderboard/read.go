package leaderboard

import "guildhall/internal/base/page"

// The statements of readers. :board is the leaderboard's table, whose name is also a value in
// rank_indexes, and :points is its column (db.With). Each is one statement, so that rows, numbers
// and moves come from one snapshot.
//
// In the statements, depths have an upper bound, 0. From the bound Postgres learns that not all
// rows can be behind a given position, and reads the index in its order. Depths have no lower
// bound: from version 18 on, Postgres would start reading there, before all members who have as
// many points as a checkpoint. The subqueries of a rank index's numbers, with nothing appended, run
// once and not for each use. A checkpoint is read as the first row of an order that only the right
// index has. If the condition were on its number alone, Postgres would read all checkpoints of the
// rank index while it has no statistics.

const firstPages = `
		SELECT user_id, :points AS points
		FROM :board
		WHERE guild_id = $1
		ORDER BY -:points, length(user_id), user_id` + page.CutOut

// deepPages reads from the last checkpoint with at most $3 rows ahead of it. The rows ahead of a
// checkpoint are its number plus the changes by moves that are not added up yet. The first choice
// of the checkpoint ignores the moves. If, with the moves, that checkpoint is behind the page, the
// second choice is used, which allows for all moves. Without the materialized steps and LIMIT 1,
// Postgres would compute the rows ahead of every checkpoint.
const deepPages = `
		WITH map AS MATERIALIZED (
			SELECT version, ahead || '{}' AS ahead
			FROM rank_indexes
			WHERE guild_id = $1 AND board = :'board' AND state = 'live'
		), moves AS MATERIALIZED (
			SELECT v.user_id, v.was, v.is_now
			FROM map
			JOIN rank_moves v ON v.guild_id = $1 AND v.board = :'board' AND v.version = map.version
		), guess AS MATERIALIZED (
			SELECT version, g.number, ahead[g.number] AS counted
			FROM map, LATERAL (
				SELECT width_bucket($3::bigint, ahead) AS number
				UNION ALL
				SELECT width_bucket($3::bigint - count(*), ahead) FROM moves HAVING count(*) > 0
			) g
		), near AS MATERIALIZED (
			SELECT k.depth, k.length, k.user_id, guess.counted + (
			           SELECT count(*) FILTER (WHERE (v.is_now, length(v.user_id), v.user_id) < (k.depth, k.length, k.user_id))
			                - count(*) FILTER (WHERE (v.was, length(v.user_id), v.user_id) < (k.depth, k.length, k.user_id))
			           FROM moves v
			       ) AS ahead
			FROM guess, LATERAL (
				SELECT depth, length, user_id
				FROM rank_checkpoints
				WHERE guild_id = $1 AND board = :'board' AND version = guess.version AND number <= guess.number
				ORDER BY number DESC
				LIMIT 1
			) k
		), start AS MATERIALIZED (
			SELECT depth, length, user_id, $3::bigint - ahead AS skip
			FROM near
			WHERE ahead <= $3::bigint
			ORDER BY ahead DESC
			LIMIT 1
		)
		SELECT t.user_id, t.:points AS points
		FROM :board t
		WHERE t.guild_id = $1
		  AND -t.:points <= (SELECT 0::bigint)
		  AND (-t.:points, length(t.user_id), t.user_id) >= (coalesce((SELECT depth FROM start), -9223372036854775807), coalesce((SELECT length FROM start), 0), coalesce((SELECT user_id FROM start), ''))
		ORDER BY -t.:points, length(t.user_id), t.user_id
		LIMIT $2 OFFSET coalesce((SELECT skip FROM start), $3::bigint)`

// rowsBetween counts the rows from the position (from_depth, from_length, from_user_id) of a row w
// up to its position (depth, length, user_id). Postgres stops reading at such a comparison of rows
// only after the first column has passed, and thousands of members can have equal points. So
// rowsBetween has three ranges, each with an end that Postgres stops at: more points; equal points
// and a shorter user id; equal points and a user id of the same length.
const rowsBetween = `(
			SELECT count(*)
			FROM :board t
			WHERE t.guild_id = $1
			  AND -t.:points < w.depth
			  AND (-t.:points, length(t.user_id), t.user_id) >= (w.from_depth, w.from_length, w.from_user_id)
		) + (
			SELECT count(*)
			FROM :board t
			WHERE t.guild_id = $1
			  AND -t.:points = w.depth AND length(t.user_id) < w.length
			  AND (length(t.user_id), t.user_id) >= (CASE w.from_depth WHEN w.depth THEN w.from_length ELSE 0 END, CASE w.from_depth WHEN w.depth THEN w.from_user_id ELSE '' END)
		) + (
			SELECT count(*)
			FROM :board t
			WHERE t.guild_id = $1
			  AND -t.:points = w.depth AND length(t.user_id) = w.length AND t.user_id < w.user_id
			  AND t.user_id >= CASE WHEN w.from_depth = w.depth AND w.from_length = w.length THEN w.from_user_id ELSE '' END
		)`

// rankOf counts the rows from the last checkpoint before the member to the member, and from the
// last checkpoint of all to the end, unless that checkpoint is the end.
const rankOf = `
		WITH me AS MATERIALIZED (
			SELECT -:points AS depth, length(user_id) AS length, user_id
			FROM :board
			WHERE guild_id = $1 AND user_id = $2
		), map AS MATERIALIZED (
			SELECT version, ahead || '{}' AS ahead
			FROM rank_indexes
			WHERE guild_id = $1 AND board = :'board' AND state = 'live'
		), near AS MATERIALIZED (
			SELECT map.ahead[k.number] AS ahead, k.depth, k.length, k.user_id
			FROM map, me, LATERAL (
				SELECT number, depth, length, user_id
				FROM rank_checkpoints
				WHERE guild_id = $1 AND board = :'board' AND version = map.version
				  AND (depth, length, user_id) <= (me.depth, me.length, me.user_id)
				ORDER BY depth DESC, length DESC, user_id DESC
				LIMIT 1
			) k
		), last AS MATERIALIZED (
			SELECT map.ahead[cardinality(map.ahead)] AS ahead, k.depth, k.length, k.user_id
			FROM map, LATERAL (
				SELECT depth, length, user_id
				FROM rank_checkpoints
				WHERE guild_id = $1 AND board = :'board' AND version = map.version
				ORDER BY depth DESC, length DESC, user_id DESC
				LIMIT 1
			) k
		), moved AS MATERIALIZED (
			SELECT count(*) FILTER (WHERE (v.is_now, length(v.user_id), v.user_id) < (near.depth, near.length, near.user_id))
			     - count(*) FILTER (WHERE (v.was, length(v.user_id), v.user_id) < (near.depth, near.length, near.user_id)) AS near,
			       count(*) FILTER (WHERE (v.is_now, length(v.user_id), v.user_id) < (last.depth, last.length, last.user_id))
			     - count(*) FILTER (WHERE (v.was, length(v.user_id), v.user_id) < (last.depth, last.length, last.user_id)) AS last
			FROM map
			JOIN rank_moves v ON v.guild_id = $1 AND v.board = :'board' AND v.version = map.version
			LEFT JOIN near ON true
			LEFT JOIN last ON true
		), walk AS MATERIALIZED (
			SELECT coalesce(near.depth, -9223372036854775807) AS from_depth, coalesce(near.length, 0) AS from_length, coalesce(near.user_id, '') AS from_user_id,
			       me.depth, me.length, me.user_id
			FROM me
			LEFT JOIN near ON true
		)
		SELECT -w.depth AS points,
		       1 + coalesce((SELECT ahead FROM near), 0) + (SELECT near FROM moved) + ` + rowsBetween + ` AS rank,
		       coalesce((SELECT ahead FROM last), 0) + (SELECT last FROM moved) + CASE (SELECT depth FROM last) WHEN 9223372036854775807 THEN 0 ELSE (
		           SELECT count(*)
		           FROM :board t
		           WHERE t.guild_id = $1
		             AND -t.:points <= (SELECT 0::bigint)
		             AND (-t.:points, length(t.user_id), t.user_id) >= (coalesce((SELECT depth FROM last), -9223372036854775807), coalesce((SELECT length FROM last), 0), coalesce((SELECT user_id FROM last), ''))
		       ) END AS of
		FROM walk w`
