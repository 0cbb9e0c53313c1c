package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/wire"
)

// serveByHand is what the whole stack is held against: net/http, one prepared
// statement, the same JSON, and nothing else. No token, no limits, no log.
func serveByHand(ctx context.Context, address string) error {
	pool, err := db.OpenSQL(os.Getenv("GUILDHALL_DATABASE_URL"), "bench-by-hand", 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	wallet, err := pool.PrepareContext(ctx, `SELECT user_id, balance, updated_at FROM wallets WHERE guild_id = $1 AND user_id = $2`)
	if err != nil {
		return err
	}
	type data struct {
		UserID    string     `json:"user_id"`
		Balance   int64      `json:"balance"`
		UpdatedAt *wire.Time `json:"updated_at"`
	}
	type envelope struct {
		Data data `json:"data"`
	}
	s := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var e envelope
			var at time.Time
			user := strings.TrimPrefix(r.URL.Path, "/api/v1/economy/wallet/")
			if err := wallet.QueryRowContext(r.Context(), guildID, user).Scan(&e.Data.UserID, &e.Data.Balance, &at); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			t := wire.At(at)
			e.Data.UpdatedAt = &t
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(e) // the client has gone; it will say so
		}),
	}
	context.AfterFunc(ctx, func() { s.Close() })
	if err := s.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}
