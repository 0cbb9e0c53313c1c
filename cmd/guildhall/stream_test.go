package main

import (
	"encoding/json"
	"strings"
	"testing"

	"guildhall/gen"
	"guildhall/internal/server/api/apitest"
)

// guildhall stream creates, changes, lists and deletes the event streams of the bot, and refuses
// what the API refuses.
func TestOperatorsChangeStreams(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	command := func(args ...string) result {
		return call(t, "", append([]string{"stream", args[0], "--database-url", api.Server.DBURL}, args[1:]...)...)
	}
	var made gen.BotStream
	out := command("put", "mirror", "--event", "case.created, case.updated", "--echo", "--json").ok(t)
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Name != "mirror" || len(made.Events) != 2 || !made.Echo {
		t.Errorf("put prints %s, %v", out, err)
	}
	api.Bot(t).Do(t, "listBotStreams", "").Want(t, 200, `{"data":[
		{"name":"mirror","events":["case.created","case.updated"],"echo":true},{"name":"work"}]}`)
	command("put", "mirror", "--event", "case.created").ok(t)
	if out := command("list").ok(t); !strings.Contains(out, "mirror") || strings.Contains(out, "case.updated") ||
		!strings.Contains(out, "never") {
		t.Errorf("list prints %s", out)
	}
	command("put", "Mirror", "--event", "case.created").refused(t, 2, "name of a stream")
	command("put", "work", "--event", "case.created").refused(t, 2, "work")
	command("put", "mirror", "--event", "case.eaten").refused(t, 2, "case.eaten")
	command("put", "mirror", "--event", ",").refused(t, 2, "--event is given and says nothing")
	command("delete", "work").refused(t, 2, "work")
	command("delete", "mirror", "--json").ok(t)
	command("delete", "mirror").refused(t, 1, "no such stream")
	var all []gen.BotStream
	if out := command("list", "--json").ok(t); json.Unmarshal([]byte(out), &all) != nil || len(all) != 1 || all[0].Name != "work" {
		t.Errorf("list prints %s", out)
	}
}
