// Command go tells the short story of an integration, with a client generated
// by oapi-codegen. GUILDHALL_URL and GUILDHALL_TOKEN say where and who, and
// GUILDHALL_CA names the certificate authority of a development server.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/oapi-codegen/nullable"

	"guildhall/examples/go/client"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := story(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		os.Exit(1)
	}
}

// connect returns a client that trusts the given authority and carries the token.
func connect() (*client.ClientWithResponses, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if file := os.Getenv("GUILDHALL_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return client.NewClientWithResponses(os.Getenv("GUILDHALL_URL"),
		client.WithHTTPClient(&http.Client{Transport: transport, Timeout: 20 * time.Second}),
		client.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
			req.Header.Set("Authorization", "Bearer "+os.Getenv("GUILDHALL_TOKEN"))
			return nil
		}))
}

func story(ctx context.Context) error {
	api, err := connect()
	if err != nil {
		return err
	}

	// Who am I?
	me, err := api.GetMeWithResponse(ctx)
	if err != nil {
		return err
	}
	if me.JSON200 == nil {
		return fmt.Errorf("me: %s %s", me.Status(), me.Body)
	}
	token := me.JSON200.Token
	fmt.Printf("token %s of guild %s, %d scopes, %s\n", token.Preview, token.GuildID, len(token.Scopes), me.JSON200.API.Env)

	user := "190320984123768832"
	if err := payOnce(ctx, api, user); err != nil {
		return err
	}
	if err := activeWarnings(ctx, api); err != nil {
		return err
	}

	// A failure is a value with a code.
	refused, err := api.AdjustBalanceWithResponse(ctx, nil, client.AdjustBalanceRequest{UserID: user, Delta: -9007199254740991})
	if err != nil {
		return err
	}
	if refused.JSON422 == nil || refused.JSON422.Error.Code != "balance_would_be_negative" {
		return fmt.Errorf("refused: %s %s", refused.Status(), refused.Body)
	}
	fmt.Printf("refused: %s\n", refused.JSON422.Error.Code)
	if err := webhook(ctx, api); err != nil {
		return err
	}
	return payday(ctx, api)
}

// payOnce pays a member twice with one key: the second answer is the first one
// again.
func payOnce(ctx context.Context, api *client.ClientWithResponses, user string) error {
	key := rand.Text()
	pay := func() (*client.AdjustBalanceResponse, error) {
		return api.AdjustBalanceWithResponse(ctx,
			&client.AdjustBalanceParams{IdempotencyKey: &key},
			client.AdjustBalanceRequest{UserID: user, Delta: 30})
	}
	first, err := pay()
	if err != nil {
		return err
	}
	again, err := pay()
	if err != nil {
		return err
	}
	if first.JSON200 == nil || string(first.Body) != string(again.Body) {
		return fmt.Errorf("adjust: %s then %s", first.Body, again.Body)
	}
	if again.HTTPResponse.Header.Get("Idempotent-Replay") != "true" {
		return errors.New("adjust: the second answer is no replay")
	}
	paid := first.JSON200.Data
	fmt.Printf("paid once: balance %d, entry %s\n", paid.Balance, paid.LedgerEntry.ID)

	// The ledger has it, at the top.
	size := int32(5)
	ledger, err := api.ListLedgerEntriesWithResponse(ctx, &client.ListLedgerEntriesParams{UserID: &user, PerPage: &size})
	if err != nil {
		return err
	}
	if ledger.JSON200 == nil || len(ledger.JSON200.Data) == 0 || ledger.JSON200.Data[0].ID != paid.LedgerEntry.ID {
		return fmt.Errorf("ledger: %s", ledger.Body)
	}
	fmt.Printf("ledger: %d entries, more: %t\n", len(ledger.JSON200.Data), ledger.JSON200.HasMore)
	return nil
}

// activeWarnings reads cases by two filters.
func activeWarnings(ctx context.Context, api *client.ClientWithResponses) error {
	kind, status := client.CaseTypeFilterWarn, client.CaseStatusFilterActive
	cases, err := api.ListCasesWithResponse(ctx, &client.ListCasesParams{Type: &kind, Status: &status})
	if err != nil {
		return err
	}
	if cases.JSON200 == nil || len(cases.JSON200.Data) == 0 {
		return fmt.Errorf("cases: %s", cases.Body)
	}
	for _, c := range cases.JSON200.Data {
		if c.Type != string(kind) || c.Status != string(status) {
			return fmt.Errorf("cases: %s is a %s %s", c.ID, c.Status, c.Type)
		}
	}
	fmt.Printf("cases: %d active warnings\n", len(cases.JSON200.Data))
	return nil
}

// webhook registers a receiver, has it pinged and verifies the signature over
// the raw bytes.
func webhook(ctx context.Context, api *client.ClientWithResponses) (err error) {
	server, deliveries := listen()
	defer server.Close()
	made, err := api.CreateWebhookEndpointWithResponse(ctx, nil, client.CreateWebhookEndpointRequest{
		URL: nullable.NewNullableWithValue(server.URL + "/hook"), Events: []client.WebhookEventType{client.WebhookEventTypeCaseCreated},
	})
	if err != nil {
		return err
	}
	if made.JSON201 == nil {
		return fmt.Errorf("webhook: %s %s", made.Status(), made.Body)
	}
	hook := made.JSON201.Data
	defer func() {
		_, e := api.DeleteWebhookEndpointWithResponse(ctx, hook.ID, nil)
		err = errors.Join(err, e)
	}()
	ping, err := api.TestWebhookEndpointWithResponse(ctx, hook.ID, nil)
	if err != nil {
		return err
	}
	if ping.JSON202 == nil {
		return fmt.Errorf("ping: %s %s", ping.Status(), ping.Body)
	}
	select {
	case d := <-deliveries:
		if !verified(d.signature, d.body, hook.Secret, time.Now()) {
			return errors.New("the signature does not fit")
		}
		if verified(d.signature, append(d.body, ' '), hook.Secret, time.Now()) {
			return errors.New("a forged body passes")
		}
		var event client.EventPing
		if err := json.Unmarshal(d.body, &event); err != nil {
			return err
		}
		if event.Data.WebhookID != hook.ID {
			return fmt.Errorf("the ping is for %s", event.Data.WebhookID)
		}
		fmt.Printf("webhook: %s %s, verified\n", event.Type, event.ID)
		return nil
	case <-time.After(20 * time.Second):
		return errors.New("no webhook within 20 seconds")
	}
}
