package convert

import (
	"strconv"
	"strings"
)

var zeppelinFormat = &format{
	name: "zeppelin", title: "Zeppelin", items: "case",
	needs: []needed{{path: "/cases/#", members: "case_number=number user_id=id type=number created_at=text"}},
	where: "the dashboard's export of a server's cases, export_GUILD_TIME.json.",
	notes: []string{"Until when mutes and bans hold is not in the export. It stands in the tables mutes and tempbans of the bot's database " +
		"(see the recipes), and goes to --in-force; without it a mute comes in as over, and a ban without an end."},
	flags: []string{"moderator", "numbers", "in-force", "case-type"},
	table: []row{
		{path: "/cases/#", item: true},
		{path: "/cases/#/case_number", to: "case.id, case.number"},
		{path: "/cases/#/user_id", to: "case.user_id"},
		{path: "/cases/#/mod_id", to: "case.moderator_id"},
		{path: "/cases/#/type", to: "case.type"},
		{path: "/cases/#/created_at", to: "case.created_at"},
		{path: "/cases/#/notes/#/body", to: "case.reason"},
		{path: "/cases/#/user_name"},
		{path: "/cases/#/mod_name"},
		{path: "/cases/#/is_hidden"},
		{path: "/cases/#/pp_id"},
		{path: "/cases/#/pp_name"},
		{path: "/cases/#/log_message_id"},
		{path: "/cases/#/notes/#/mod_id"},
		{path: "/cases/#/notes/#/mod_name"},
		{path: "/cases/#/notes/#/created_at"},
	},
	start:  func(r *conversion) (handler, error) { return &zeppelin{r: r}, nil },
	survey: func(*conversion) bool { return true },
}

// zeppelinTypes maps Zeppelin's case types to kinds. A deleted case has the user 0.
var zeppelinTypes = map[int64]string{1: "ban", 2: "unban", 3: "note", 4: "warn", 5: "kick", 6: "mute", 7: "unmute", 8: "deleted", 9: "softban"}

type zeppelin struct {
	r *conversion
	silent
}

func (z *zeppelin) item(it *item) error {
	members, err := needs(it.value, "case_number", "user_id", "type", "created_at")
	if err != nil {
		return err
	}
	c := incident{at: it.value, user: members[1], moderator: it.get("mod_id")}
	if c.number, err = z.r.whole(members[0]); err != nil {
		return err
	}
	c.id = "zeppelin-" + strconv.FormatInt(c.number, 10)
	kind, err := z.r.whole(members[2])
	if err != nil {
		return err
	}
	if c.kind = zeppelinTypes[kind]; c.kind == "" {
		c.kind = "type " + strconv.FormatInt(kind, 10)
	}
	if c.made, err = z.r.instant(members[3]); err != nil {
		return err
	}
	var bodies []string
	for _, note := range it.get("notes").list() {
		body, err := z.r.prose(note.get("body"))
		if err != nil {
			return err
		}
		if body != "" {
			bodies = append(bodies, body)
		}
	}
	c.reason, c.reasonAt = strings.Join(bodies, "\n\n"), it.get("notes")
	return z.r.incident(c)
}

// needs returns members of an object, or an error for the first one that is missing.
func needs(v *value, names ...string) ([]*value, error) {
	all := make([]*value, len(names))
	for i, name := range names {
		var err error
		if all[i], err = required(v, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}
