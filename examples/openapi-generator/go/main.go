// The short story of an integration, with a client by openapi-generator.
// GUILDHALL_URL and GUILDHALL_TOKEN say where and who; Go reads the certificate
// authority of a development server from SSL_CERT_FILE.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"

	openapi "github.com/GIT_USER_ID/GIT_REPO_ID"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const user = "190320984123768832"

func main() {
	config := openapi.NewConfiguration()
	config.Servers = openapi.ServerConfigurations{{URL: os.Getenv("GUILDHALL_URL")}}
	ctx := context.WithValue(context.Background(), openapi.ContextAccessToken, os.Getenv("GUILDHALL_TOKEN"))
	if err := story(ctx, openapi.NewAPIClient(config)); err != nil {
		log.Fatal(err)
	}
}

func story(ctx context.Context, api *openapi.APIClient) error {
	me, _, err := api.MetaAPI.GetMe(ctx).Execute()
	if err != nil {
		return fmt.Errorf("who am I: %w", err)
	}
	fmt.Printf("token %s of guild %s, %d scopes\n", me.Token.Preview, me.Token.GuildId, len(me.Token.Scopes))

	// Pay a member, twice with one key: the second answer is the first one again.
	key, reference := rand.Text(), "go-"+rand.Text()
	payment := openapi.NewAdjustBalanceRequest(user, 30)
	payment.SetReason("Event prize")
	payment.SetReference(reference)
	pay := func() (string, bool, error) {
		paid, res, err := api.EconomyAPI.AdjustBalance(ctx).AdjustBalanceRequest(*payment).IdempotencyKey(key).Execute()
		if err != nil {
			return "", false, fmt.Errorf("pay: %w", err)
		}
		return paid.Data.LedgerEntry.Id, res.Header.Get("Idempotent-Replay") == "true", nil
	}
	first, replayed, err := pay()
	if err != nil || replayed {
		return fmt.Errorf("the first payment: replayed is %v: %w", replayed, err)
	}
	if again, replayed, err := pay(); err != nil || again != first || !replayed {
		return fmt.Errorf("the second payment: entry %s after %s: %w", again, first, err)
	}
	ledger, _, err := api.EconomyAPI.ListLedgerEntries(ctx).Reference(reference).Execute()
	if err != nil || len(ledger.Data) != 1 || ledger.Data[0].Id != first {
		return fmt.Errorf("the ledger has not that one entry: %v: %w", ledger, err)
	}
	fmt.Println("paid once:", first)

	cases, _, err := api.CasesAPI.ListCases(ctx).Type_(openapi.WARN).Status(openapi.ACTIVE).Execute()
	if err != nil || len(cases.Data) == 0 {
		return fmt.Errorf("list cases: %v: %w", cases, err)
	}
	fmt.Println("cases:", len(cases.Data), "active warnings")

	// Every optional member null says the same as none.
	payment = openapi.NewAdjustBalanceRequest(user, 0)
	payment.SetReasonNil()
	payment.SetReferenceNil()
	if _, _, err = api.EconomyAPI.AdjustBalance(ctx).AdjustBalanceRequest(*payment).Execute(); err != nil {
		return fmt.Errorf("adjust with nulls: %w", err)
	}

	// A failure is an error with a code.
	_, _, err = api.EconomyAPI.AdjustBalance(ctx).AdjustBalanceRequest(*openapi.NewAdjustBalanceRequest(user, -9007199254740991)).Execute()
	var failure *openapi.GenericOpenAPIError
	if !errors.As(err, &failure) {
		return fmt.Errorf("not refused: %w", err)
	}
	envelope, ok := failure.Model().(openapi.Failure)
	if !ok || envelope.Error.Code != "balance_would_be_negative" {
		return fmt.Errorf("refused with %v", failure.Model())
	}
	fmt.Println("refused:", envelope.Error.Code)
	if err := webhook(ctx, api, reference); err != nil {
		return err
	}
	return payday(ctx, api)
}

// webhook registers a receiver, has it pinged and verifies the raw bytes.
func webhook(ctx context.Context, api *openapi.APIClient, path string) (err error) {
	endpoint := openapi.NewCreateWebhookEndpointRequest([]openapi.WebhookEventType{openapi.CASE_CREATED})
	endpoint.SetUrl(os.Getenv("GUILDHALL_RECEIVER") + "/" + path)
	made, _, err := api.WebhooksAPI.CreateWebhookEndpoint(ctx).CreateWebhookEndpointRequest(*endpoint).Execute()
	if err != nil {
		return fmt.Errorf("register a receiver: %w", err)
	}
	hook := made.Data
	defer func() {
		_, e := api.WebhooksAPI.DeleteWebhookEndpoint(ctx, hook.Id).Execute()
		err = errors.Join(err, e)
	}()
	if _, _, err := api.WebhooksAPI.TestWebhookEndpoint(ctx, hook.Id).Execute(); err != nil {
		return fmt.Errorf("have it pinged: %w", err)
	}
	delivery, err := http.Get(os.Getenv("GUILDHALL_INBOX") + "/" + path)
	if err != nil {
		return err
	}
	defer delivery.Body.Close()
	body, err := io.ReadAll(delivery.Body)
	if err != nil {
		return err
	}
	verifier, err := standardwebhooks.NewWebhook(hook.Secret)
	if err != nil {
		return err
	}
	if err := verifier.Verify(body, delivery.Header); err != nil {
		return fmt.Errorf("verify the ping: %w", err)
	}
	if verifier.Verify(append(body, ' '), delivery.Header) == nil {
		return errors.New("a forged body passes")
	}
	var event openapi.EventPing
	if err := json.Unmarshal(body, &event); err != nil {
		return err
	}
	if event.Data.WebhookId != hook.Id {
		return fmt.Errorf("the ping is for %s", event.Data.WebhookId)
	}
	fmt.Printf("webhook: %s %s, verified\n", event.Type, event.Id)
	return nil
}

// payday pays a thousand members in ten calls, a hundred at a time: all of them or none. Each
// payment has a reference, so that none is made twice, however often the call is sent.
func payday(ctx context.Context, api *openapi.APIClient) (err error) {
	endpoint := openapi.NewCreateWebhookEndpointRequest([]openapi.WebhookEventType{openapi.ECONOMY_BALANCE_CHANGED})
	endpoint.SetDelivery("pull")
	made, _, err := api.WebhooksAPI.CreateWebhookEndpoint(ctx).CreateWebhookEndpointRequest(*endpoint).Execute()
	if err != nil {
		return fmt.Errorf("make a pull endpoint: %w", err)
	}
	hook := made.Data.Id
	defer func() {
		_, e := api.WebhooksAPI.DeleteWebhookEndpoint(ctx, hook).Execute()
		err = errors.Join(err, e)
	}()
	for call := range 10 {
		list := make([]openapi.AdjustBalanceRequest, 100)
		for i := range list {
			member := strconv.Itoa(800000000000000000 + call*100 + i)
			list[i] = *openapi.NewAdjustBalanceRequest(member, 5)
			list[i].SetReference(hook + "/" + member)
		}
		body := openapi.NewAdjustBalancesRequest(list)
		if paid, _, err := api.EconomyAPI.AdjustBalances(ctx).AdjustBalancesRequest(*body).Execute(); err != nil || len(paid.Data) != 100 {
			return fmt.Errorf("pay a hundred: %v: %w", paid, err)
		}
	}
	seen := make(map[string]bool)
	for len(seen) < 1000 {
		if err := work(ctx, api, hook, seen); err != nil {
			return err
		}
	}
	fmt.Printf("payday: 1000 members in 10 calls, %d events fetched and acknowledged\n", len(seen))
	return nil
}

// work is one turn of a worker: it waits until there is something, does its work with each
// event that it has not seen, and acknowledges them.
func work(ctx context.Context, api *openapi.APIClient, hook string, seen map[string]bool) error {
	pull := openapi.NewPullWebhookEventsRequest()
	pull.SetWait(5)
	got, _, err := api.WebhooksAPI.PullWebhookEvents(ctx, hook).PullWebhookEventsRequest(*pull).Execute()
	if err != nil || len(got.Data) == 0 {
		return fmt.Errorf("fetch: %v: %w", got, err)
	}
	ack := openapi.NewAckWebhookEventsRequest()
	for _, event := range got.Data {
		ack.EventIds = append(ack.EventIds, event.Id)
		seen[event.Id] = true
	}
	done, _, err := api.WebhooksAPI.AckWebhookEvents(ctx, hook).AckWebhookEventsRequest(*ack).Execute()
	if err != nil || int(done.Data.SettledCount) != len(got.Data) {
		return fmt.Errorf("acknowledge: %v: %w", done, err)
	}
	return nil
}
