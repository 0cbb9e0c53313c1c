package story;

import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import guildhall.client.ApiClient;
import guildhall.client.ApiException;
import guildhall.client.ApiResponse;
import guildhall.client.JSON;
import guildhall.client.api.CasesApi;
import guildhall.client.api.EconomyApi;
import guildhall.client.api.MetaApi;
import guildhall.client.model.AdjustBalanceRequest;
import guildhall.client.model.BalanceAdjustmentEnvelope;
import guildhall.client.model.CreatableCaseType;
import guildhall.client.model.CreateCaseRequest;
import guildhall.client.model.Failure;
import guildhall.client.model.Me;
import guildhall.client.model.ModelCase;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;

/**
 * The short story of an integration, with a client by openapi-generator's okhttp-gson.
 * GUILDHALL_URL, GUILDHALL_TOKEN and GUILDHALL_CA say where and who.
 */
public final class Story {
  private static final String USER = "190320984123768832";

  private Story() {}

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.setBasePath(System.getenv("GUILDHALL_URL"));
    client.setBearerToken(System.getenv("GUILDHALL_TOKEN"));
    if (System.getenv("GUILDHALL_CA") != null) {
      try (InputStream ca = Files.newInputStream(Path.of(System.getenv("GUILDHALL_CA")))) {
        client.setSslCaCert(ca);
      }
    }

    Me me = new MetaApi(client).getMe();
    System.out.printf("token %s of guild %s, %d scopes%n",
        me.getToken().getPreview(), me.getToken().getGuildId(), me.getToken().getScopes().size());

    // Pay a member, twice with one key: the second answer is the first one again.
    EconomyApi economy = new EconomyApi(client);
    AdjustBalanceRequest payment = new AdjustBalanceRequest().userId(USER).delta(30L).reason("Event prize");
    String key = UUID.randomUUID().toString();
    BalanceAdjustmentEnvelope first = economy.adjustBalance(payment, key);
    ApiResponse<BalanceAdjustmentEnvelope> again = economy.adjustBalanceWithHttpInfo(payment, key);
    check(first.equals(again.getData()), "the second answer is another one");
    check(again.getHeaders().getOrDefault("idempotent-replay", List.of()).contains("true"), "the second answer is no replay");
    System.out.printf("paid once: %s%n", first.getData().getLedgerEntry().getId());

    // A reason is text as people write it.
    ModelCase filed = new CasesApi(client).createCase(new CreateCaseRequest().userId(USER).moderatorId("1344871507951616014")
        .type(CreatableCaseType.NEW_WARN).reason("Spam \u2014 zum 2. Mal"), null).getData();
    check(filed.getReason().equals("Spam \u2014 zum 2. Mal"), "another reason");
    System.out.printf("case %d filed%n", filed.getNumber());

    // An answer of a later release has members that this client does not know.
    JsonObject later = JsonParser.parseString(filed.toJson()).getAsJsonObject();
    later.add("expires_at", JsonNull.INSTANCE); // toJson leaves nulls out
    later.addProperty("member_of_a_later_release", true);
    check(ModelCase.fromJson(later.toString()).getId().equals(filed.getId()), "another case");

    // A failure is an exception with a code.
    try {
      economy.adjustBalance(new AdjustBalanceRequest().userId(USER).delta(-9007199254740991L), null);
      check(false, "not refused");
    } catch (ApiException e) {
      Failure failure = JSON.getGson().fromJson(e.getResponseBody(), Failure.class);
      check(failure.getError().getCode().equals("balance_would_be_negative"), "refused with " + failure.getError().getCode());
      System.out.printf("refused: %s%n", failure.getError().getCode());
    }
    System.exit(0); // the client's threads stay for a minute
  }

  private static void check(boolean claim, String otherwise) {
    if (!claim) {
      throw new IllegalStateException(otherwise);
    }
  }
}
