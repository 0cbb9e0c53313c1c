package story;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A receiver of webhooks, as small as it can be and still be right: raw bytes, constant-time
 * comparison, five minutes of tolerance.
 */
final class Receiver implements AutoCloseable {
  record Delivery(String signature, byte[] body) {}

  final BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
  private final HttpServer server;

  Receiver() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0), 0);
    server.createContext("/hook", exchange -> {
      byte[] body = exchange.getRequestBody().readAllBytes();
      exchange.sendResponseHeaders(204, -1);
      exchange.close();
      deliveries.add(new Delivery(exchange.getRequestHeaders().getFirst("Service-Signature"), body));
    });
    server.start();
  }

  String url() {
    return "http://127.0.0.1:" + server.getAddress().getPort() + "/hook";
  }

  @Override
  public void close() {
    server.stop(0);
  }

  /** Says whether the header signs exactly these bytes with this secret. */
  static boolean verified(String header, byte[] body, String secret, Instant now) throws GeneralSecurityException {
    String time = "";
    for (String part : header.split(",")) {
      if (part.startsWith("t=")) {
        time = part.substring(2);
      }
    }
    if (!time.matches("[0-9]{1,12}")
        || Duration.between(Instant.ofEpochSecond(Long.parseLong(time)), now).abs().toMinutes() >= 5) {
      return false;
    }
    Mac mac = Mac.getInstance("HmacSHA256");
    mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
    mac.update((time + ".").getBytes(StandardCharsets.UTF_8));
    byte[] want = HexFormat.of().formatHex(mac.doFinal(body)).getBytes(StandardCharsets.UTF_8);
    // There is one v1 per secret while a secret is being rotated.
    for (String part : header.split(",")) {
      if (part.startsWith("v1=")
          && MessageDigest.isEqual(part.substring(3).getBytes(StandardCharsets.UTF_8), want)) {
        return true;
      }
    }
    return false;
  }
}
