// Command receiver receives webhooks for the stories that bring none of their
// own. It takes deliveries over HTTPS, under a path that a story chooses, and
// hands each out once, with its headers and its exact bytes, to who asks for the
// same path over plain HTTP. It prints both base URLs and writes the certificate
// that a server has to trust, GUILDHALL_WEBHOOK_CA, to the file named by -ca.
package main

import (
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const patience = 20 * time.Second

type delivery struct {
	headers http.Header
	body    []byte
}

// boxes are the deliveries that wait, by path.
type boxes struct {
	mu     sync.Mutex
	byPath map[string]chan delivery
}

func (b *boxes) of(path string) chan delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byPath[path] == nil {
		b.byPath[path] = make(chan delivery, 16)
	}
	return b.byPath[path]
}

func (b *boxes) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case b.of(r.URL.Path) <- delivery{r.Header, body}:
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "nobody reads these deliveries", http.StatusServiceUnavailable)
	}
}

func (b *boxes) handOut(w http.ResponseWriter, r *http.Request) {
	select {
	case d := <-b.of(r.URL.Path):
		for _, name := range []string{"Content-Type", "Service-Signature", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			w.Header().Set(name, d.headers.Get(name))
		}
		_, _ = w.Write(d.body) // the caller may be gone
	case <-time.After(patience):
		http.Error(w, "no webhook within 20 seconds", http.StatusGatewayTimeout)
	case <-r.Context().Done():
	}
}

func main() {
	file := flag.String("ca", "receiver.pem", "`file` for the certificate")
	flag.Parse()
	if err := run(*file); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	b := &boxes{byPath: map[string]chan delivery{}}
	receiver := httptest.NewTLSServer(http.HandlerFunc(b.receive))
	defer receiver.Close()
	inbox := httptest.NewServer(http.HandlerFunc(b.handOut))
	defer inbox.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw})
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	if _, err := fmt.Fprintf(os.Stdout, "GUILDHALL_RECEIVER=%s\nGUILDHALL_INBOX=%s\n", receiver.URL, inbox.URL); err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	return nil
}
