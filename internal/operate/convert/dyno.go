package convert

import "strconv"

var dynoFormat = &format{
	name: "dyno", title: "Dyno", items: "case", newestFirst: true,
	needs: []needed{{path: "/logs/#", members: "type=text user=object createdAt=text"}},
	where: "https://dyno.gg/api/modules/GUILD/modlogs?pageSize=50&page=N with the session of the server's owner, for N from 0 until pageCount, a file a page.",
	notes: []string{"Until when mutes and bans hold is not in it: --in-force says so; without it a mute comes in as over, and a ban without an end. " +
		"Pages move while they are fetched; a case that comes twice is written once."},
	flags: []string{"source-guild", "moderator", "numbers", "in-force", "case-type"},
	table: []row{
		{path: "/logs/#", item: true},
		{path: "/logs/#/caseNum", to: "case.number, case.id"},
		{path: "/logs/#/_id", to: "case.id, without a number"},
		{path: "/logs/#/server", to: "guild"},
		{path: "/logs/#/type", to: "case.type"},
		{path: "/logs/#/user/id", to: "case.user_id"},
		{path: "/logs/#/mod/id", to: "case.moderator_id"},
		{path: "/logs/#/reason", to: "case.reason"},
		{path: "/logs/#/createdAt", to: "case.created_at"},
		{path: "/pageCount", to: "the number of files that there should be"},
		{path: "/logs/#/user/username"},
		{path: "/logs/#/user/discriminator"},
		{path: "/logs/#/user/avatar"},
		{path: "/logs/#/mod/username"},
		{path: "/logs/#/mod/discriminator"},
		{path: "/logs/#/mod/avatar"},
	},
	start:  func(r *conversion) (handler, error) { return &dyno{pages: pages{r: r, name: "pageCount"}}, nil },
	survey: func(*conversion) bool { return true },
}

// pages compares the number of files with the number that the files state.
type pages struct {
	r    *conversion
	name string // name of the member with the number
	most int64
	last *value
}

func (p *pages) fact(_ string, v *value) error {
	n, err := p.r.whole(v)
	if err == nil && n > p.most {
		p.most = n
		file, _ := v.where()
		p.last = &value{line: v.line, at: &position{file: file, steps: []step{{name: p.name}}}}
	}
	return err
}

func (p *pages) end() error { //nolint:unparam // an end of others fails
	if p.most > int64(p.r.documents) {
		p.r.warn(p.last, "of "+strconv.FormatInt(p.most, 10)+" pages "+strconv.Itoa(p.r.documents)+" were given; fetch the others too")
	}
	return nil
}

type dyno struct{ pages }

func (d *dyno) item(it *item) error {
	members, err := needs(it.value, "type", "user", "createdAt")
	if err != nil {
		return err
	}
	user, err := required(members[1], "id")
	if err != nil {
		return err
	}
	c := incident{at: it.value, user: user, moderator: it.get("mod").get("id"), reasonAt: it.get("reason")}
	if c.kind, err = d.r.prose(members[0]); err != nil {
		return err
	}
	if number := it.get("caseNum"); !number.none() {
		if c.number, err = d.r.whole(number); err != nil {
			return err
		}
		c.id = "dyno-" + strconv.FormatInt(c.number, 10)
	} else {
		id, err := required(it.value, "_id")
		if err != nil {
			return err
		}
		if id.kind != kindText || id.text == "" || len("dyno-"+id.text) > maxID {
			return wrong(id, "must be the key of a case; it is "+id.shown())
		}
		c.id = "dyno-" + id.text
	}
	if c.reason, err = d.r.prose(c.reasonAt); err != nil {
		return err
	}
	if c.made, err = d.r.instant(members[2]); err != nil {
		return err
	}
	return d.r.incident(c)
}
