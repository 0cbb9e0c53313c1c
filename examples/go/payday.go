package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"guildhall/examples/go/client"
)

// payday pays a thousand members in ten calls, and has a worker fetch what was changed:
// each event once, for it acknowledges what it is done with.
func payday(ctx context.Context, api *client.ClientWithResponses) (err error) {
	made, err := api.CreateWebhookEndpointWithResponse(ctx, nil, client.CreateWebhookEndpointRequest{
		Delivery: nullable.NewNullableWithValue(client.CreateWebhookEndpointRequestDeliveryPull),
		Events:   []client.WebhookEventType{client.WebhookEventTypeEconomyBalanceChanged},
	})
	if err != nil {
		return err
	}
	if made.JSON201 == nil {
		return fmt.Errorf("pull endpoint: %s %s", made.Status(), made.Body)
	}
	hook := made.JSON201.Data.ID
	defer func() {
		_, e := api.DeleteWebhookEndpointWithResponse(ctx, hook, nil)
		err = errors.Join(err, e)
	}()
	for call := range 10 {
		if err := payHundred(ctx, api, hook, call); err != nil {
			return err
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

// payHundred pays a hundred members: all of them or none. Each payment has a reference, so
// that none is made twice, however often the call is sent.
func payHundred(ctx context.Context, api *client.ClientWithResponses, payday string, call int) error {
	list := make([]client.AdjustBalanceRequest, 100)
	for i := range list {
		user := strconv.Itoa(800000000000000000 + call*100 + i)
		list[i] = client.AdjustBalanceRequest{UserID: user, Delta: 5, Reference: nullable.NewNullableWithValue(payday + "/" + user)}
	}
	paid, err := api.AdjustBalancesWithResponse(ctx, nil, client.AdjustBalancesRequest{Adjustments: list})
	if err != nil {
		return err
	}
	if paid.JSON200 == nil || len(paid.JSON200.Data) != len(list) {
		return fmt.Errorf("payday: %s %s", paid.Status(), paid.Body)
	}
	return nil
}

// work is one turn of a worker: it waits until there is something, does its work with
// each event that it has not seen, and acknowledges them.
func work(ctx context.Context, api *client.ClientWithResponses, hook string, seen map[string]bool) error {
	got, err := api.PullWebhookEventsWithResponse(ctx, hook, client.PullWebhookEventsRequest{Wait: nullable.NewNullableWithValue(int32(10))})
	if err != nil {
		return err
	}
	if got.JSON200 == nil || len(got.JSON200.Data) == 0 {
		return fmt.Errorf("fetch: %s %s", got.Status(), got.Body)
	}
	ids := make([]string, len(got.JSON200.Data))
	for i, event := range got.JSON200.Data {
		ids[i], seen[event.ID] = event.ID, true
	}
	done, err := api.AckWebhookEventsWithResponse(ctx, hook, nil, client.AckWebhookEventsRequest{EventIds: nullable.NewNullableWithValue(ids)})
	if err != nil {
		return err
	}
	if done.JSON200 == nil || int(done.JSON200.Data.SettledCount) != len(ids) {
		return fmt.Errorf("acknowledge: %s %s", done.Status(), done.Body)
	}
	return nil
}
