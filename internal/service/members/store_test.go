package members

import (
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
)

func TestListsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Exec(t, d, `
		INSERT INTO members (guild_id, user_id, name, folded, left_at, joined_at)
		SELECT g::text, n::text, 'N' || n, 'n' || n, CASE WHEN n % 10 = 0 THEN now() END, now() - interval '1 day'
		FROM generate_series(1, 2) g, generate_series(1, 5000) n`)
	dbtest.Exec(t, d, `ANALYZE members`)
	p, prefix, past := page.Of(2, 25), "N12", time.Now().Add(-time.Hour)
	yes, no := true, false
	for _, c := range []struct {
		f     filter
		index string
	}{
		{filter{}, "members_pkey"},
		{filter{Present: &yes}, "members_pkey"},
		{filter{Present: &no}, "members_left"},
		{filter{Prefix: &prefix}, "members_named"},
		{filter{Prefix: &prefix, Present: &yes}, "members_named"},
		{filter{Changed: &past}, "members_changed"},
	} {
		statement, args := query("1", c.f, p)
		dbtest.WantIndex(t, d, c.index, statement, args...)
	}
	dbtest.WantIndex(t, d, "members_pkey", oneMember, "1", "7")

	dbtest.Exec(t, d, `UPDATE members SET metadata = '{"shop":"all"}' WHERE guild_id = '2' OR user_id IN ('10', '11', '12')`)
	dbtest.Exec(t, d, `ANALYZE members`)
	statement, args := query("1", filter{Metadata: &metadata.Lookup{Name: "shop", Value: "all"}}, p)
	dbtest.WantFound(t, d, "members", "members_metadata", 3, statement, args...)
}
