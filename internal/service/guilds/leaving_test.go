package guilds_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guilds"
)

// A guild's removal is scheduled while an endpoint is registered or enabled. Afterwards no endpoint
// is enabled: otherwise it would get the guild's events if the guild is restored, although the
// removal has said that all endpoints are disabled.
func TestNoEndpointIsEnabledBesideTheRemovalOfItsGuild(t *testing.T) {
	t.Parallel()
	for operation, body := range map[string]string{
		"createWebhookEndpoint": `{"delivery":"pull","events":["case.created"]}`, "updateWebhookEndpoint": `{"enabled":true}`,
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t)
			id := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "").Str(t, "data.id")
			dbtest.Exec(t, api.DB(), `UPDATE webhook_endpoints SET enabled = false`)
			var path []apitest.Arg
			if operation == "updateWebhookEndpoint" {
				path = append(path, apitest.Path("id", id))
			}
			held, leave, gone, answered := make(chan struct{}), make(chan struct{}), make(chan error), make(chan *apitest.Response, 1)
			go func() {
				gone <- api.DB().Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					_, err := guilds.Remove(ctx, tx, api.Guild, 7)
					close(held)
					<-leave
					return err
				})
			}()
			<-held
			go func() { answered <- api.Do(t, operation, body, path...) }()
			testutil.Eventually(t, "the call waits", func() bool {
				return len(answered) > 0 || dbtest.Waiting(t, api.DB()) > 0
			})
			close(leave)
			if err := <-gone; err != nil {
				t.Fatal(err)
			}
			(<-answered).WantError(t, 404, "not_found")
			if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM webhook_endpoints WHERE enabled`); n != 0 {
				t.Errorf("%d endpoints are enabled", n)
			}
		})
	}
}
