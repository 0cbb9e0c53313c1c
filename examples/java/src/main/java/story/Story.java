package story;

import com.fasterxml.jackson.core.JsonProcessingException;
import guildhall.client.ApiClient;
import guildhall.client.ApiException;
import guildhall.client.ApiResponse;
import guildhall.client.api.CasesApi;
import guildhall.client.api.EconomyApi;
import guildhall.client.api.MetaApi;
import guildhall.client.api.WebhooksApi;
import guildhall.client.model.AdjustBalanceRequest;
import guildhall.client.model.FailureDetail;
import guildhall.client.model.BalanceAdjustment;
import guildhall.client.model.BalanceAdjustmentEnvelope;
import guildhall.client.model.CaseList;
import guildhall.client.model.CaseStatusFilter;
import guildhall.client.model.CaseTypeFilter;
import guildhall.client.model.CreateWebhookEndpointRequest;
import guildhall.client.model.Failure;
import guildhall.client.model.EventPing;
import guildhall.client.model.LedgerEntryList;
import guildhall.client.model.Me;
import guildhall.client.model.WebhookEndpointWithSecret;
import guildhall.client.model.WebhookEventType;
import java.io.InputStream;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * The short story of an integration, with a client by openapi-generator. GUILDHALL_URL and
 * GUILDHALL_TOKEN say where and who, and GUILDHALL_CA names the certificate authority of a
 * development server.
 */
public final class Story {
  private static final String USER = "190320984123768832";

  private Story() {}

  public static void main(String[] args) throws Exception {
    ApiClient client = connect();

    // Who am I?
    Me me = new MetaApi(client).getMe();
    System.out.printf("token %s of guild %s, %d scopes, %s%n",
        me.getToken().getPreview(), me.getToken().getGuildId(), me.getToken().getScopes().size(), me.getApi().getEnv());

    // Pay a member, twice with one key: the second answer is the first one again.
    EconomyApi economy = new EconomyApi(client);
    AdjustBalanceRequest payment = new AdjustBalanceRequest().userId(USER).delta(30L).reason("Event prize");
    String key = UUID.randomUUID().toString();
    ApiResponse<BalanceAdjustmentEnvelope> first = economy.adjustBalanceWithHttpInfo(payment, key);
    ApiResponse<BalanceAdjustmentEnvelope> again = economy.adjustBalanceWithHttpInfo(payment, key);
    check(first.getData().equals(again.getData()), "the second answer is another one");
    check(again.getHeaders().getOrDefault("idempotent-replay", List.of()).contains("true"), "the second answer is no replay");
    BalanceAdjustment paid = first.getData().getData();
    System.out.printf("paid once: balance %d, entry %s%n", paid.getBalance(), paid.getLedgerEntry().getId());

    // The ledger has it, at the top.
    LedgerEntryList ledger = economy.listLedgerEntries(EconomyApi.APIListLedgerEntriesRequest.newBuilder().userId(USER).perPage(5).build());
    check(ledger.getData().get(0).getId().equals(paid.getLedgerEntry().getId()), "the ledger begins with another entry");
    System.out.printf("ledger: %d entries, more: %b%n", ledger.getData().size(), ledger.getHasMore());

    // Warnings, as far as they are active.
    CaseList cases = new CasesApi(client).listCases(
        CasesApi.APIListCasesRequest.newBuilder().type(CaseTypeFilter.WARN).status(CaseStatusFilter.ACTIVE).build());
    check(!cases.getData().isEmpty() && cases.getData().stream().allMatch(c -> c.getType().equals("warn")), "other cases were listed");
    System.out.printf("cases: %d active warnings%n", cases.getData().size());

    // A failure is an exception with a code.
    try {
      economy.adjustBalance(new AdjustBalanceRequest().userId(USER).delta(-9007199254740991L), null);
      throw new IllegalStateException("the balance went below zero");
    } catch (ApiException e) {
      FailureDetail error = error(client, e);
      check(e.getCode() == 422 && error.getCode().equals("balance_would_be_negative"), "got " + error.getCode());
      System.out.printf("refused: %s%n", error.getCode());
    }

    webhook(client);
    Payday.run(client);
  }

  /** Registers a receiver, has it pinged and verifies the signature over the raw bytes. */
  private static void webhook(ApiClient client) throws Exception {
    WebhooksApi webhooks = new WebhooksApi(client);
    try (Receiver receiver = new Receiver()) {
      WebhookEndpointWithSecret hook = webhooks.createWebhookEndpoint(
          new CreateWebhookEndpointRequest().url(receiver.url()).addEventsItem(WebhookEventType.CASE_CREATED), null).getData();
      try {
        webhooks.testWebhookEndpoint(hook.getId(), null);
        Receiver.Delivery delivery = receiver.deliveries.poll(20, TimeUnit.SECONDS);
        check(delivery != null, "no webhook within 20 seconds");
        byte[] forged = Arrays.copyOf(delivery.body(), delivery.body().length + 1);
        check(Receiver.verified(delivery.signature(), delivery.body(), hook.getSecret(), Instant.now()), "the signature does not fit");
        check(!Receiver.verified(delivery.signature(), forged, hook.getSecret(), Instant.now()), "a forged body passes");
        EventPing event = client.getObjectMapper().readValue(delivery.body(), EventPing.class);
        check(event.getData().getWebhookId().equals(hook.getId()), "the ping is for another endpoint");
        System.out.printf("webhook: %s %s, verified%n", event.getType(), event.getId());
      } finally {
        webhooks.deleteWebhookEndpoint(hook.getId(), null);
      }
    }
  }

  private static ApiClient connect() throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(System.getenv("GUILDHALL_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + System.getenv("GUILDHALL_TOKEN")));
    String ca = System.getenv("GUILDHALL_CA");
    if (ca != null) {
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      try (InputStream pem = Files.newInputStream(Path.of(ca))) {
        trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
      }
      TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      managers.init(trusted);
      SSLContext tls = SSLContext.getInstance("TLS");
      tls.init(null, managers.getTrustManagers(), null);
      client.setHttpClientBuilder(HttpClient.newBuilder().sslContext(tls));
    }
    return client;
  }

  private static FailureDetail error(ApiClient client, ApiException e) throws JsonProcessingException {
    return client.getObjectMapper().readValue(e.getResponseBody(), Failure.class).getError();
  }

  static void check(boolean claim, String otherwise) {
    if (!claim) {
      throw new IllegalStateException(otherwise);
    }
  }
}
