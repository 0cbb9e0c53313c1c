package convert

import "fmt"

var unbelievaboatFormat = &format{
	name: "unbelievaboat", title: "UnbelievaBoat", items: "user",
	where: "https://unbelievaboat.com/api/v1/guilds/GUILD/users?page=N&limit=1000 with the token of an application of yours, a file a page.\n" +
		"A sheet with the columns cash and bank is read by --from csv.",
	notes: []string{"A wallet gets cash and bank together; --balance cash or bank takes one of them."},
	flags: []string{"balance"},
	table: []row{
		{path: "/users/#", item: true},
		{path: "/users/#/user_id", to: "wallet.user_id"},
		{path: "/users/#/cash", to: "wallet.balance"},
		{path: "/users/#/bank", to: "wallet.balance"},
		{path: "/#", item: true},
		{path: "/#/user_id", to: "wallet.user_id"},
		{path: "/#/cash", to: "wallet.balance"},
		{path: "/#/bank", to: "wallet.balance"},
		{path: "/total_pages", to: "the number of files that there should be"},
		{path: "/page"},
		{path: "/users/#/rank"},
		{path: "/users/#/total"},
		{path: "/users/#/guild_id"},
		{path: "/users/#/found"},
		{path: "/#/rank"},
		{path: "/#/total"},
		{path: "/#/guild_id"},
		{path: "/#/found"},
	},
	start: func(r *conversion) (handler, error) { return &unbelievaboat{r: r}, nil },
}

type unbelievaboat struct {
	r     *conversion
	pages int64
	last  *value
}

func (u *unbelievaboat) fact(_ string, v *value) error {
	n, err := u.r.whole(v)
	if err == nil && n > u.pages {
		u.pages = n
		file, _ := v.where()
		u.last = &value{line: v.line, at: &position{file: file, steps: []step{{name: "total_pages"}}}}
	}
	return err
}

func (u *unbelievaboat) end() error {
	if u.pages > int64(u.r.documents) {
		u.r.warn(u.last, fmt.Sprintf("of %d pages %d were given; fetch the others too", u.pages, u.r.documents))
	}
	return nil
}

func (u *unbelievaboat) item(it *item) error {
	id, err := required(it.value, "user_id")
	if err != nil {
		return err
	}
	cash, err := required(it.value, "cash")
	if err != nil {
		return err
	}
	bank, err := required(it.value, "bank")
	if err != nil {
		return err
	}
	user, err := u.r.subject(id, it.value)
	if err != nil || user == "" {
		return err
	}
	return u.r.pockets(it, user, cash, bank)
}
