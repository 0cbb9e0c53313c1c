package webhooks_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/webhooks"
)

func TestMain(m *testing.M) {
	apitest.Main(m, "Webhooks")
}

// verifier is a receiver that verifies each request with the Standard Webhooks library and refuses
// those that it cannot verify.
type verifier struct {
	*egresstest.Receiver
	mu       sync.Mutex // guards the fields below
	secret   string
	status   int
	verified []string // the types of verified events
	refused  int
}

func newVerifier(t *testing.T) *verifier {
	t.Helper()
	v := &verifier{status: http.StatusNoContent}
	v.Receiver = egresstest.NewTLSReceiver(t, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		v.mu.Lock()
		defer v.mu.Unlock()
		library, bad := standard.NewWebhook(v.secret)
		if err != nil || bad != nil || library.Verify(body, r.Header) != nil {
			v.refused++
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		v.verified = append(v.verified, r.Header.Get("Service-Event"))
		rw.WriteHeader(v.status)
		_, _ = io.WriteString(rw, "thanks")
	})
	return v
}

func (v *verifier) types() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.verified)
}

// expect sets the secret to verify with and the status to respond with.
func (v *verifier) expect(secret string, status int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.secret, v.status = secret, status
}

// config returns the configuration of a delivery worker for the test's server.
func config(t *testing.T, api *apitest.API, receiver *verifier) delivery.Config {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AddCert(receiver.Certificate())
	return delivery.Config{
		DB: api.DB(), Box: api.Server.Sealer, Authorities: trusted,
		Guard: egress.NewGuard(egresstest.Loopback, nil),
	}
}

func work(t *testing.T, cfg delivery.Config) {
	t.Helper()
	d, err := delivery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func register(t *testing.T, api *apitest.API, url string) (id, secret string) {
	t.Helper()
	a := api.Do(t, "createWebhookEndpoint", `{"url":"`+url+`","events":["economy.balance_changed","case.created"]}`).Want(t, 201, "")
	return a.Str(t, "data.id"), a.Str(t, "data.secret")
}

func TestCreateWebhookEndpoint(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	t.Run("shows the secret once and keeps it unreadable", func(t *testing.T) {
		a := api.Key("k").Do(t, "createWebhookEndpoint",
			`{"url":"https://127.0.0.1:9/x","events":["xp.level_up","case.created","xp.level_up"],"description":"Audit log"}`).
			Want(t, 201, `{"data":{"url":"https://127.0.0.1:9/x","description":"Audit log",`+
				`"events":["case.created","xp.level_up"],"enabled":true,"disabled_reason":null}}`)
		id, secret := a.Str(t, "data.id"), a.Str(t, "data.secret")
		if a.Header.Get("Location") != "/api/v1/webhooks/"+id {
			t.Errorf("Location is %q", a.Header.Get("Location"))
		}
		if !strings.HasPrefix(secret, "whsec_") || !strings.HasSuffix(secret, strings.TrimPrefix(a.Str(t, "data.secret_preview"), "whsec_...")) {
			t.Errorf("secret %q, preview %q", secret, a.Str(t, "data.secret_preview"))
		}
		api.Key("k").Do(t, "createWebhookEndpoint",
			`{"url":"https://127.0.0.1:9/x","events":["xp.level_up","case.created","xp.level_up"],"description":"Audit log"}`).
			WantReplayOf(t, a)
		for _, body := range []string{
			string(api.Do(t, "getWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"id":"`+id+`"}}`).Body),
			string(api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[{"id":"`+id+`"}]}`).Body),
		} {
			if strings.Contains(body, secret) {
				t.Error("the secret is shown again")
			}
		}
		var stored []struct {
			Row string `db:"row"`
		}
		err := api.DB().Reader().SelectContext(t.Context(), &stored, `
			SELECT e::text || encode(secret, 'escape') AS row FROM webhook_endpoints e
			UNION ALL SELECT k::text || encode(body, 'escape') FROM idempotency_keys k`)
		if err != nil || len(stored) != 2 {
			t.Fatalf("%d rows, %v", len(stored), err)
		}
		for _, s := range stored {
			if strings.Contains(s.Row, secret) || strings.Contains(s.Row, secret[10:30]) {
				t.Error("the secret can be read in the database")
			}
		}
	})
	t.Run("can start disabled", func(t *testing.T) {
		api.Do(t, "createWebhookEndpoint", `{"url":"http://127.0.0.1:9/","events":["case.created"],"enabled":false}`).
			Want(t, 201, `{"data":{"enabled":false,"disabled_reason":null,"description":null}}`)
	})
	for _, bad := range []string{
		`{"url":"http://93.184.215.14/","events":["case.created"]}`,
		`{"url":"http://example.invalid/","events":["case.created"]}`,
		`{"url":"https://user:pw@127.0.0.1/","events":["case.created"]}`,
		`{"url":"https://127.0.0.1/#x","events":["case.created"]}`,
		`{"url":"https://127.0.0.1:99999/","events":["case.created"]}`,
		`{"url":"ftp://127.0.0.1/","events":["case.created"]}`,
		`{"url":"127.0.0.1","events":["case.created"]}`,
		`{"url":"https://127.0.0.1/","events":[]}`,
		`{"url":"https://127.0.0.1/","events":["ping"]}`,
		`{"url":"https://127.0.0.1/","events":["case.deleted"]}`,
		`{"url":"https://127.0.0.1/","events":["case.created"],"description":"` + strings.Repeat("x", 201) + `"}`,
		`{"url":"https://127.0.0.1/","events":["case.created"],"description":"two\nlines"}`,
		`{"url":"https://127.0.0.1/","events":["case.created"],"description":"\u009b31m"}`,
		`{"url":"https://127.0.0.1/","events":["case.created"],"description":"two\u2028lines"}`,
		`{"url":"https://127.0.0.1/"}`,
		`{"events":["case.created"]}`,
	} {
		t.Run("refuses "+bad, func(t *testing.T) {
			api.Do(t, "createWebhookEndpoint", bad).WantError(t, 400, "invalid_request")
		})
	}
	for _, url := range []string{
		"https://10.0.0.1/", "https://169.254.169.254/latest/meta-data/", "https://[::ffff:10.0.0.1]/", "https://[fd00::1]/",
		"https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://does-not-exist.invalid/", "https://93.184.215.14:22/",
		"https://[aC]:65502/", "https://[1.2.3.4]/", "https://[::1::]/",
	} {
		t.Run("does not allow "+url, func(t *testing.T) {
			api.Do(t, "createWebhookEndpoint", `{"url":"`+url+`","events":["case.created"]}`).WantError(t, 422, "webhook_url_not_allowed")
		})
	}
	t.Run("tells a name that does not exist from one that cannot be resolved now", func(t *testing.T) {
		says := atomic.Pointer[egresstest.Answer]{}
		says.Store(&egresstest.ServFail)
		api := apitest.New(t, apitest.Names(func(string, bool) egresstest.Answer { return *says.Load() })).Key("k")
		const body = `{"url":"https://later.test/","events":["case.created"]}`
		for _, now := range []*egresstest.Answer{&egresstest.ServFail, &egresstest.Silent} {
			says.Store(now)
			if a := api.Do(t, "createWebhookEndpoint", body).WantError(t, 503, "service_unavailable"); a.Header.Get("Retry-After") == "" {
				t.Error("nothing says when to try again")
			}
		}
		found := egresstest.Addresses("127.0.0.1")
		says.Store(&found) // a 503 is not stored: the same key succeeds now
		api.Do(t, "createWebhookEndpoint", body).Want(t, 201, `{"data":{"url":"https://later.test/"}}`)
		says.Store(&egresstest.NoSuchName)
		a := api.Next(t).Do(t, "createWebhookEndpoint", body).WantError(t, 422, "webhook_url_not_allowed")
		if message := a.Str(t, "error.message"); !strings.Contains(message, "does not exist") {
			t.Errorf("the message is %q", message)
		}
	})
	t.Run("ends at ten, also for those who come at once", func(t *testing.T) {
		next := api.Next(t)
		dbtest.Unlisten(t, next.DB(), next.Guild)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[int]int{}
		op := apitest.Find(t, "createWebhookEndpoint")
		for range 14 {
			wg.Go(func() {
				a, err := next.Retry(op, `{"url":"https://127.0.0.1/","events":["case.created"]}`)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got[a.Status]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if got[201] != 10 || got[422] != 4 {
			t.Errorf("got %v, want 10 × 201 and 4 × 422", got)
		}
		next.Do(t, "createWebhookEndpoint", `{"url":"https://127.0.0.1/","events":["case.created"]}`).WantError(t, 422, "webhook_limit_reached")
		// An unusable URL is reported before other refusals.
		next.Do(t, "createWebhookEndpoint", `{"url":"https://[1]/","events":["case.created"]}`).WantError(t, 422, "webhook_url_not_allowed")
	})
}

func TestUpdateWebhookEndpoint(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	t.Run("changes what is named", func(t *testing.T) {
		api.Do(t, "updateWebhookEndpoint", `{"url":"https://127.0.0.1:10/new","description":"label"}`, on).
			Want(t, 200, `{"data":{"url":"https://127.0.0.1:10/new","description":"label",`+
				`"events":["case.created","economy.balance_changed"],"enabled":true}}`)
		api.Do(t, "updateWebhookEndpoint", `{"events":["ticket.closed"]}`, on).
			Want(t, 200, `{"data":{"url":"https://127.0.0.1:10/new","description":"label","events":["ticket.closed"]}}`)
		api.Do(t, "updateWebhookEndpoint", `{"description":null,"enabled":false}`, on).
			Want(t, 200, `{"data":{"description":null,"enabled":false}}`)
		api.Do(t, "updateWebhookEndpoint", `{"enabled":true}`, on).Want(t, 200, `{"data":{"enabled":true,"disabled_reason":null}}`)
	})
	t.Run("stays as it is by what changes nothing", func(t *testing.T) {
		before := api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, "").Str(t, "data.updated_at")
		api.Do(t, "updateWebhookEndpoint", `{"url":"https://127.0.0.1:10/new","description":null,"events":["ticket.closed"],"enabled":true}`, on).
			Want(t, 200, `{"data":{"updated_at":"`+before+`"}}`)
	})
	t.Run("refuses what a registration refuses", func(t *testing.T) {
		api.Do(t, "updateWebhookEndpoint", `{}`, on).WantError(t, 400, "invalid_request")
		api.Do(t, "updateWebhookEndpoint", `{"events":[]}`, on).WantError(t, 400, "invalid_request")
		api.Do(t, "updateWebhookEndpoint", `{"url":"http://93.184.215.14/"}`, on).WantError(t, 400, "invalid_request")
		api.Do(t, "updateWebhookEndpoint", `{"url":"https://192.168.1.1/"}`, on).WantError(t, 422, "webhook_url_not_allowed")
		api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, `{"data":{"url":"https://127.0.0.1:10/new"}}`)
	})
}

// An endpoint that was disabled stays so, with the same reason, when it is edited. Enabling it
// clears the reason.
func TestADisabledEndpointIsEdited(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	dbtest.Exec(t, api.DB(), `UPDATE webhook_endpoints SET enabled = false, disabled_reason = 'gone'`)
	const off = `{"data":{"enabled":false,"disabled_reason":"gone"}}`
	api.Do(t, "updateWebhookEndpoint", `{"description":"label"}`, on).Want(t, 200, off)
	api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, off)
	api.Do(t, "updateWebhookEndpoint", `{"enabled":true}`, on).Want(t, 200, `{"data":{"enabled":true,"disabled_reason":null}}`)
}

func TestEndpointsBelongToOneGuild(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	delivery := api.Do(t, "testWebhookEndpoint", "", apitest.Path("id", id)).
		Want(t, 202, `{"data":{"event_type":"ping","status":"pending","attempt_count":0}}`).Str(t, "data.id")
	for _, view := range []struct {
		api          *apitest.API
		id, delivery string
	}{{api.Next(t), id, delivery}, {api, "no-such", delivery}} {
		on, of := apitest.Path("id", view.id), apitest.Path("deliveryId", view.delivery)
		view.api.Do(t, "getWebhookEndpoint", "", on).WantError(t, 404, "not_found")
		view.api.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).WantError(t, 404, "not_found")
		view.api.Do(t, "deleteWebhookEndpoint", "", on).WantError(t, 404, "not_found")
		view.api.Do(t, "rotateWebhookSecret", "", on).WantError(t, 404, "not_found")
		view.api.Do(t, "testWebhookEndpoint", "", on).WantError(t, 404, "not_found")
		view.api.Do(t, "listWebhookDeliveries", "", on).WantError(t, 404, "not_found")
		view.api.Do(t, "getWebhookDelivery", "", on, of).WantError(t, 404, "not_found")
		view.api.Do(t, "redeliverWebhookDelivery", "", on, of).WantError(t, 404, "not_found")
	}
	api.Do(t, "getWebhookDelivery", "", apitest.Path("id", id), apitest.Path("deliveryId", "no-such")).WantError(t, 404, "not_found")
	api.Do(t, "redeliverWebhookDelivery", "", apitest.Path("id", id), apitest.Path("deliveryId", "no-such")).WantError(t, 404, "not_found")
	api.Next(t).Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[],"has_more":false}`)

	for _, op := range []string{
		"getWebhookEndpoint", "deleteWebhookEndpoint", "rotateWebhookSecret", "testWebhookEndpoint", "getWebhookDelivery",
		"redeliverWebhookDelivery",
	} {
		api.Do(t, op, "", apitest.Path("id", id), apitest.Path("deliveryId", delivery), apitest.Query("force", "true")).
			WantError(t, 400, "invalid_request")
	}
	api.Do(t, "getWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 200, "")
}

// A change of one endpoint does not change the guild's other endpoints.
func TestAChangeIsOfOneEndpoint(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	other, _ := register(t, api, "https://127.0.0.1:9/")
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	api.Do(t, "rotateWebhookSecret", "", apitest.Path("id", other)).Want(t, 200, "") // so that the endpoint has a replaced secret
	row := func() string {
		return dbtest.Value[string](t, api.DB(), `
			SELECT to_jsonb(e)::text FROM webhook_endpoints e WHERE guild_id = $1 AND id = $2`, api.Guild, other)
	}
	before := row()
	for _, c := range []struct {
		operation, body string
		status          int
	}{
		{"updateWebhookEndpoint", `{"url":"https://127.0.0.1:10/","description":"mine","events":["ticket.closed"]}`, 200},
		{"rotateWebhookSecret", "", 200},
		{"rotateWebhookSecret", `{"old_secret_expires_in":0}`, 200},
		{"deleteWebhookEndpoint", "", 204},
	} {
		a := api.Do(t, c.operation, c.body, on).Want(t, c.status, "")
		if c.status == 200 && a.Str(t, "data.id") != id {
			t.Errorf("%s answers with endpoint %s", c.operation, a.Str(t, "data.id"))
		}
		if c.operation == "rotateWebhookSecret" {
			if err := webhooks.EndOldSecrets(t.Context(), api.DB(), api.Guild, id); err != nil {
				t.Fatal(err)
			}
		}
		if after := row(); after != before {
			t.Fatalf("%s makes of the other endpoint\n%s, was\n%s", c.operation, after, before)
		}
	}
}

func TestListsOfEndpointsAndDeliveries(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	var ids []string
	for range 3 {
		id, _ := register(t, api, "https://127.0.0.1:9/")
		ids = append(ids, id)
	}
	api.Do(t, "listWebhookEndpoints", "", apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"`+ids[2]+`"},{"id":"`+ids[1]+`"}],"page":1,"per_page":2,"has_more":true}`)
	api.Do(t, "listWebhookEndpoints", "", apitest.Query("per_page", "2"), apitest.Query("page", "2")).
		Want(t, 200, `{"data":[{"id":"`+ids[0]+`"}],"has_more":false}`)
	api.Do(t, "listWebhookEndpoints", "", apitest.Query("page", "0")).WantError(t, 400, "invalid_request")

	on := apitest.Path("id", ids[0])
	var queued []string
	for range 3 {
		queued = append(queued, api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, "").Str(t, "data.id"))
	}
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"`+queued[2]+`"},{"id":"`+queued[1]+`"}],"has_more":true}`)
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("status", "delivered")).Want(t, 200, `{"data":[],"has_more":false}`)
	api.Do(t, "getWebhookDelivery", "", on, apitest.Path("deliveryId", queued[0])).Want(t, 200, "")
	api.Do(t, "getWebhookDelivery", "", apitest.Path("id", ids[1]), apitest.Path("deliveryId", queued[0])).WantError(t, 404, "not_found")
	api.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).Want(t, 200, "")
	api.Do(t, "redeliverWebhookDelivery", "", on, apitest.Path("deliveryId", queued[0])).Want(t, 202, `{"data":{"status":"held"}}`)
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("status", "held")).Want(t, 200, `{"data":[{"next_attempt_at":null}]}`)
	api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, `{"data":{"status":"pending"}}`)
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("status", "lost")).WantError(t, 400, "invalid_request")
}

func TestWhatTheAPIChangesIsHeard(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	receiver := newVerifier(t)
	id, secret := register(t, api, receiver.URL)
	receiver.expect(secret, 200)
	work(t, config(t, api, receiver))
	on := apitest.Path("id", id)

	adjusted := api.Key("once").Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, "")
	api.Key("once").Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).WantReplayOf(t, adjusted)
	api.Do(t, "adjustXp", `{"user_id":"42","delta":500}`).Want(t, 200, "") // an event type that the endpoint does not subscribe to
	testutil.Eventually(t, "the event", func() bool { return len(receiver.types()) == 1 })

	var list struct {
		Data []struct{ ID, Status string }
	}
	testutil.Eventually(t, "the log to show it", func() bool {
		api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("status", "delivered")).Into(t, &list)
		return len(list.Data) == 1
	})
	detail := api.Do(t, "getWebhookDelivery", "", on, apitest.Path("deliveryId", list.Data[0].ID)).
		Want(t, 200, `{"data":{"event_type":"economy.balance_changed","status":"delivered","attempt_count":1,"next_attempt_at":null,"error":null,
			"response_status":200,"response_excerpt":null,"attempts":[{"number":1,"response_status":200,"response_excerpt":null,"error":null}]}}`)
	var body struct {
		ID   string
		Data struct{ Delta int }
	}
	if err := json.Unmarshal([]byte(detail.Str(t, "data.request_body")), &body); err != nil || body.Data.Delta != 5 ||
		body.ID != detail.Str(t, "data.event_id") {
		t.Errorf("the request body is %+v, %v", body, err)
	}

	t.Run("a redelivery keeps the event's id", func(t *testing.T) {
		again := api.Do(t, "redeliverWebhookDelivery", "", on, apitest.Path("deliveryId", list.Data[0].ID)).
			Want(t, 202, `{"data":{"event_id":"`+body.ID+`","status":"pending","attempt_count":0}}`)
		if again.Str(t, "data.id") == list.Data[0].ID {
			t.Error("the redelivery has the first delivery's id")
		}
		testutil.Eventually(t, "the redelivery", func() bool { return len(receiver.types()) == 2 })
		testutil.Eventually(t, "its attempt in the log", func() bool {
			return api.Do(t, "getWebhookDelivery", "", on, apitest.Path("deliveryId", again.Str(t, "data.id"))).Str(t, "data.status") == "delivered"
		})
		api.Do(t, "getWebhookDelivery", "", on, apitest.Path("deliveryId", list.Data[0].ID)).
			Want(t, 200, `{"data":{"attempt_count":1,"attempts":[{"number":1}]}}`)
	})
	t.Run("a replaced secret signs along", func(t *testing.T) {
		fresh := api.Do(t, "rotateWebhookSecret", "", on).Want(t, 200, `{"data":{"id":"`+id+`"}}`).Str(t, "data.secret")
		if fresh == secret {
			t.Fatal("the secret is the same")
		}
		for i, s := range []string{secret, fresh} {
			receiver.expect(s, 200)
			api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, "")
			testutil.Eventually(t, "the ping", func() bool { return len(receiver.types()) == 3+i })
		}
		if got := receiver.types(); got[3] != "ping" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a deleted endpoint hears nothing more", func(t *testing.T) {
		heard := len(receiver.types())
		api.Do(t, "deleteWebhookEndpoint", "", on).Want(t, 204, "")
		api.Do(t, "getWebhookEndpoint", "", on).WantError(t, 404, "not_found")
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, "")
		other, secret := register(t, api, receiver.URL)
		receiver.expect(secret, 200)
		api.Do(t, "testWebhookEndpoint", "", apitest.Path("id", other)).Want(t, 202, "")
		testutil.Eventually(t, "the next endpoint's ping", func() bool { return len(receiver.types()) > heard })
		if got := receiver.types(); len(got) != heard+1 {
			t.Errorf("heard %v", got[heard:])
		}
	})
	if receiver.refused > 0 {
		t.Errorf("%d deliveries could not be verified", receiver.refused)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	receiver := newVerifier(t)
	engine := config(t, api, receiver)
	cfg := webhooks.Config{DB: engine.DB, Box: engine.Box, Guard: engine.Guard}
	ctx := t.Context()

	register(t, api.Next(t), receiver.URL) // an endpoint of another guild, which comes first
	added, err := webhooks.Add(ctx, cfg, cfg.DB, api.Guild, receiver.URL, "", nil)
	if err != nil || len(added.Events) != len(event.Types) {
		t.Fatalf("Add: %+v, %v", added, err)
	}
	if _, err := webhooks.Add(ctx, cfg, cfg.DB, "1", receiver.URL, "", nil); !fault.Is(err, "not_found") {
		t.Errorf("Add took an unknown guild: %v", err)
	}
	if _, err := webhooks.Add(ctx, cfg, cfg.DB, api.Guild, receiver.URL, "", []string{"case.deleted"}); err == nil {
		t.Error("Add took an unknown event")
	}
	if _, err := webhooks.Add(ctx, cfg, cfg.DB, api.Guild, "https://10.0.0.1", "", nil); err == nil {
		t.Error("Add took a private address")
	}
	if guild, err := webhooks.GuildOf(ctx, cfg.DB.Reader(), added.ID); err != nil || guild != api.Guild {
		t.Errorf("the endpoint is of guild %s, %v", guild, err)
	}
	rotated, err := webhooks.Rotate(ctx, cfg, cfg.DB, api.Guild, added.ID, time.Hour)
	if err != nil || rotated.Secret == added.Secret {
		t.Errorf("Rotate: %v", err)
	}
	list, err := webhooks.List(ctx, cfg.DB, api.Guild)
	if err != nil || len(list) != 1 || list[0].ID != added.ID {
		t.Errorf("List: %+v, %v", list, err)
	}

	receiver.expect(rotated.Secret, http.StatusTeapot)
	work(t, engine)
	tested, err := webhooks.Test(ctx, cfg.DB, api.Guild, added.ID)
	if err != nil || tested.AttemptCount != 1 || tested.ResponseStatus == nil || *tested.ResponseStatus != http.StatusTeapot ||
		*tested.ResponseExcerpt != "thanks" {
		t.Errorf("Test: %+v, %v", tested, err)
	}
	receiver.expect(rotated.Secret, http.StatusOK)
	again, err := webhooks.Redeliver(ctx, cfg.DB, api.Guild, added.ID, tested.ID)
	if err != nil || again.EventID != tested.EventID {
		t.Errorf("Redeliver: %+v, %v", again, err)
	}
	testutil.Eventually(t, "the redelivery", func() bool {
		done, err := webhooks.Deliveries(ctx, cfg.DB, api.Guild, added.ID, webhooks.Filter{Status: "delivered"}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(done, func(d webhooks.Delivery) bool { return d.ID == again.ID })
	})
	if all, err := webhooks.Deliveries(ctx, cfg.DB, api.Guild, added.ID, webhooks.Filter{}, 1); err != nil || len(all) != 1 {
		t.Errorf("Deliveries: %d, %v", len(all), err)
	}
	if _, err := webhooks.Deliveries(ctx, cfg.DB, api.Guild, added.ID, webhooks.Filter{Status: "lost"}, 1); err == nil {
		t.Error("Deliveries took an unknown status")
	}
	if err := webhooks.Delete(ctx, cfg.DB, api.Guild, added.ID); err != nil {
		t.Error(err)
	}
	if err := webhooks.Delete(ctx, cfg.DB, api.Guild, added.ID); err == nil {
		t.Error("Delete removed it twice")
	}
	if _, err := webhooks.Test(ctx, cfg.DB, api.Guild, added.ID); err == nil {
		t.Error("Test tested a removed endpoint")
	}
	if guild, err := webhooks.GuildOf(ctx, cfg.DB.Reader(), added.ID); err == nil {
		t.Errorf("a removed endpoint is of guild %s", guild)
	}
}

// Each change in the dashboard applies to its guild only and is shown.
func TestWhatPeopleChangeShows(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	ctx, d, guild := t.Context(), api.DB(), api.Guild
	cfg := webhooks.Config{DB: d, Box: api.Server.Sealer, Guard: egress.NewGuard(egresstest.Loopback, nil)}
	wanted := webhooks.Settings{URL: "https://127.0.0.1:9/", Description: "the first", Events: []string{"case.created"}, Enabled: true}
	made, err := webhooks.Create(ctx, cfg, d, guild, wanted)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(description string, enabled bool) {
		t.Helper()
		one, err := webhooks.StandingOf(ctx, d.Reader(), guild, made.ID)
		all, also := webhooks.Standings(ctx, d.Reader(), guild)
		if err != nil || also != nil || len(all) != 1 || !reflect.DeepEqual(all[0], one) {
			t.Fatalf("one of all is %+v, %v; all are %+v, %v", one, err, all, also)
		}
		if one.ID != made.ID || one.URL != wanted.URL || one.Enabled != enabled || (one.Description == nil) != (description == "") ||
			one.Description != nil && *one.Description != description {
			t.Errorf("it is shown as %+v", one)
		}
	}
	shows("the first", true)
	refused := func(err error, code string) {
		t.Helper()
		if !fault.Is(err, code) {
			t.Errorf("got %v, want %s", err, code)
		}
	}
	_, err = webhooks.StandingOf(ctx, d.Reader(), guild, "none")
	refused(err, "not_found")
	refused(webhooks.Change(ctx, cfg, guild, "none", wanted), "not_found")
	refused(webhooks.Switch(ctx, cfg, guild, "none", false), "not_found")
	for _, c := range []struct {
		wanted webhooks.Settings
		code   string
	}{
		{webhooks.Settings{URL: "https://10.0.0.1/", Events: wanted.Events}, "webhook_url_not_allowed"},
		{webhooks.Settings{URL: "http://93.184.215.14/", Events: wanted.Events}, "invalid_request"},
		{webhooks.Settings{URL: wanted.URL, Events: []string{}}, "invalid_request"},
		{webhooks.Settings{URL: wanted.URL, Events: wanted.Events, Description: "two\nlines"}, "invalid_request"},
	} {
		refused(webhooks.Change(ctx, cfg, guild, made.ID, c.wanted), c.code)
	}
	// An invalid request is reported whether or not the endpoint exists.
	refused(webhooks.Change(ctx, cfg, guild, "none", webhooks.Settings{URL: "http://93.184.215.14/", Events: wanted.Events}),
		"invalid_request")
	refused(webhooks.Change(ctx, cfg, guild, "none", webhooks.Settings{URL: "https://10.0.0.1/", Events: wanted.Events}), "not_found")
	shows("the first", true)

	// A new receiver starts without failures.
	dbtest.Exec(t, d, `UPDATE webhook_schedule SET failing_since = now() WHERE guild_id = $1`, guild)
	fails := func() bool { return dbtest.Value[bool](t, d, `SELECT failing_since IS NOT NULL FROM webhook_schedule`) }
	wanted.Description = ""
	if err := webhooks.Change(ctx, cfg, guild, made.ID, wanted); err != nil || !fails() {
		t.Errorf("after another description: fails is %v, %v", fails(), err)
	}
	shows("", true)
	wanted.URL = "https://127.0.0.1:10/"
	if err := webhooks.Change(ctx, cfg, guild, made.ID, wanted); err != nil || fails() {
		t.Errorf("after another URL: fails is %v, %v", fails(), err)
	}
	shows("", true)
	if err := webhooks.Switch(ctx, cfg, guild, made.ID, false); err != nil {
		t.Error(err)
	}
	shows("", false)
	waiters := delivery.NewWaiters(d, slog.New(slog.DiscardHandler), nil)
	for _, bad := range []webhooks.Config{
		{DB: d, Box: cfg.Box, Waiters: waiters}, {DB: d, Guard: cfg.Guard, Waiters: waiters}, {DB: d, Box: cfg.Box, Guard: cfg.Guard},
	} {
		if _, err := webhooks.New(bad); err == nil {
			t.Errorf("%+v is enough", bad)
		}
	}
	if err := webhooks.Delete(ctx, d, guild, made.ID); err != nil {
		t.Error(err)
	}
	told := dbtest.Value[string](t, d, `
		SELECT string_agg(concat_ws(' ', action, target_name, before ->> 'description', after ->> 'enabled'), ', ' ORDER BY at, id)
		FROM audit_log WHERE target_id = $1`, made.ID)
	const first, second = "https://127.0.0.1:9/", "https://127.0.0.1:10/"
	if want := "webhook.created " + first + " true, webhook.updated " + first + " the first true, webhook.updated " + second +
		" true, webhook.updated " + second + " false, webhook.deleted " + second; told != want {
		t.Errorf("the audit log tells of %s, want %s", told, want)
	}
}

// Deliveries that were queued in the dashboard appear in the log, which the test reads page by
// page.
func TestWhatPeopleQueueIsLogged(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	ctx, d, guild := t.Context(), api.DB(), api.Guild
	id, _ := register(t, api, "https://127.0.0.1:9/")
	ping, err := webhooks.SendPing(ctx, d, guild, id)
	if err != nil {
		t.Fatal(err)
	}
	again, err := webhooks.SendAgain(ctx, d, guild, id, ping)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := webhooks.SendPing(ctx, d, guild, "none"); !fault.Is(err, "not_found") {
		t.Errorf("a ping of no endpoint: %v", err)
	}
	if _, err := webhooks.SendAgain(ctx, d, guild, id, "none"); !fault.Is(err, "not_found") {
		t.Errorf("a repeat of no delivery: %v", err)
	}
	var f webhooks.Filter
	for _, want := range []string{again, ping, ""} {
		rows, err := webhooks.Log(ctx, d.Reader(), guild, id, f, 1)
		if err != nil || len(rows) > 1 || (len(rows) == 1) != (want != "") {
			t.Fatalf("below %q: %+v, %v; want %q", f.BelowID, rows, err, want)
		}
		for _, r := range rows {
			if r.ID != want {
				t.Errorf("below %q stands %s, want %s", f.BelowID, r.ID, want)
			}
			f.BelowAt, f.BelowID = r.CreatedAt, r.ID
		}
	}
	fill(t, api, id, "lost-", 3, "failed", "5xx")
	since := time.Now().Add(-time.Hour)
	lost, err := webhooks.CountLost(ctx, d.Reader(), guild, id, since)
	if err != nil || lost != 3 {
		t.Errorf("%d are lost, %v", lost, err)
	}
	if n, err := webhooks.Requeue(ctx, d, guild, id, since); err != nil || n != lost {
		t.Errorf("%d are queued, %v", n, err)
	}
}

// leaving is a Querier whose caller goes away before the second query.
type leaving struct {
	db.Querier
	leave context.CancelFunc
	asked int
}

func (l *leaving) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	if l.asked++; l.asked == 2 {
		l.leave()
	}
	return l.Querier.GetContext(ctx, dest, query, args...)
}

// When its caller goes away, AwaitAttempt returns the delivery's present state and the error.
func TestWaitingForAnAttemptEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	ping, err := webhooks.SendPing(t.Context(), api.DB(), api.Guild, id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	q := &leaving{Querier: api.DB().Reader(), leave: leave}
	last, err := webhooks.AwaitAttempt(ctx, q, api.Guild, id, ping)
	if last.ID != ping || last.State != "pending" || err != context.Canceled || q.asked != 2 { //nolint:errorlint // it is this very error
		t.Errorf("after %d queries: %+v, %v", q.asked, last, err)
	}
	if _, err := webhooks.AwaitAttempt(t.Context(), api.DB().Reader(), api.Guild, id, "none"); !fault.Is(err, "not_found") {
		t.Errorf("waiting for no delivery: %v", err)
	}
}

// AwaitAttempt returns at once for a delivery that is held, and for a ping that has to be fetched.
func TestNoAttemptOfWhatIsHeldOrFetchedIsWaitedFor(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id, _ := register(t, api, "https://127.0.0.1:9/")
	ping := api.Do(t, "testWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 202, "").Str(t, "data.id")
	dbtest.Exec(t, api.DB(), `UPDATE webhook_deliveries SET state = 'held'`)
	if held, err := webhooks.AwaitAttempt(ctx, api.DB().Reader(), api.Guild, id, ping); err != nil || held.State != delivery.StateHeld {
		t.Errorf("held: %+v, %v", held, err)
	}
	pulled := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "").Str(t, "data.id")
	if kept, err := webhooks.Test(ctx, api.DB(), api.Guild, pulled); err != nil || kept.Status != "pending" {
		t.Errorf("to be fetched: %+v, %v", kept, err)
	}
}
