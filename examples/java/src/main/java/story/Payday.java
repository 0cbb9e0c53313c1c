package story;

import guildhall.client.ApiClient;
import guildhall.client.ApiException;
import guildhall.client.api.EconomyApi;
import guildhall.client.api.WebhooksApi;
import guildhall.client.model.AckWebhookEventsRequest;
import guildhall.client.model.AdjustBalanceRequest;
import guildhall.client.model.AdjustBalancesRequest;
import guildhall.client.model.CreateWebhookEndpointRequest;
import guildhall.client.model.PullWebhookEventsRequest;
import guildhall.client.model.WebhookEvent;
import guildhall.client.model.WebhookEventType;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.LongStream;

/** A payday of a thousand members, and a worker that fetches what was changed. */
final class Payday {
  private Payday() {}

  static void run(ApiClient client) throws ApiException {
    EconomyApi economy = new EconomyApi(client);
    WebhooksApi webhooks = new WebhooksApi(client);
    String hook = webhooks.createWebhookEndpoint(new CreateWebhookEndpointRequest()
        .delivery(CreateWebhookEndpointRequest.DeliveryEnum.PULL).addEventsItem(WebhookEventType.ECONOMY_BALANCE_CHANGED), null).getData().getId();
    try {
      for (int call = 0; call < 10; call++) {
        pay(economy, hook, call);
      }
      Set<String> seen = new HashSet<>();
      while (seen.size() < 1000) {
        work(webhooks, hook, seen);
      }
      System.out.printf("payday: 1000 members in 10 calls, %d events fetched and acknowledged%n", seen.size());
    } finally {
      webhooks.deleteWebhookEndpoint(hook, null);
    }
  }

  /**
   * Pays a hundred members: all of them or none. Each payment has a reference, so that none is
   * made twice, however often the call is sent.
   */
  private static void pay(EconomyApi economy, String payday, int call) throws ApiException {
    List<AdjustBalanceRequest> list = LongStream.range(0, 100).mapToObj(i -> Long.toString(800000000000000000L + call * 100 + i))
        .map(member -> new AdjustBalanceRequest().userId(member).delta(5L).reference(payday + "/" + member)).toList();
    Story.check(economy.adjustBalances(new AdjustBalancesRequest().adjustments(list), null).getData().size() == 100, "not all were paid");
  }

  /**
   * One turn of a worker: it waits until there is something, does its work with each event that
   * it has not seen, and acknowledges them.
   */
  private static void work(WebhooksApi webhooks, String hook, Set<String> seen) throws ApiException {
    // An Integer: with an int it would be Object's wait.
    PullWebhookEventsRequest pull = new PullWebhookEventsRequest().wait(Integer.valueOf(10));
    List<String> ids = webhooks.pullWebhookEvents(hook, pull).getData().stream().map(WebhookEvent::getId).toList();
    Story.check(!ids.isEmpty(), "no event came");
    seen.addAll(ids);
    int settled = webhooks.ackWebhookEvents(hook, new AckWebhookEventsRequest().eventIds(ids), null).getData().getSettledCount();
    Story.check(settled == ids.size(), "not all were settled");
  }
}
