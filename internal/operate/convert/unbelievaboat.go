package convert

var unbelievaboatFormat = &format{
	name: "unbelievaboat", title: "UnbelievaBoat", items: "user",
	needs: []needed{{path: "/users/#", members: "user_id=id cash=any bank=any"}, {path: "/#", members: "user_id=id cash=any bank=any"}},
	where: "https://unbelievaboat.com/api/v1/guilds/GUILD/users?page=N&limit=1000 with the token of an application of yours, a file a page.\n" +
		"A sheet with the columns cash and bank is read by --from csv.",
	notes: []string{"A wallet gets cash and bank together; --balance cash or bank takes one of them."},
	flags: []string{"source-guild", "balance"}, nullIsEndless: true,
	table: []row{
		{path: "/users/#", item: true},
		{path: "/users/#/user_id", to: "wallet.user_id"},
		{path: "/users/#/cash", to: "wallet.balance"},
		{path: "/users/#/bank", to: "wallet.balance"},
		{path: "/users/#/guild_id", to: "guild"},
		{path: "/#", item: true},
		{path: "/#/guild_id", to: "guild"},
		{path: "/#/user_id", to: "wallet.user_id"},
		{path: "/#/cash", to: "wallet.balance"},
		{path: "/#/bank", to: "wallet.balance"},
		{path: "/total_pages", to: "the number of files that there should be"},
		{path: "/page"},
		{path: "/users/#/rank"},
		{path: "/users/#/total"},
		{path: "/users/#/found"},
		{path: "/#/rank"},
		{path: "/#/total"},
		{path: "/#/found"},
	},
	start: func(r *conversion) (handler, error) { return &unbelievaboat{pages{r: r, name: "total_pages"}}, nil },
}

type unbelievaboat struct{ pages }

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
