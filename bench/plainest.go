package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/wire"
)

//go:embed plainest.sql
var plainestTables string

const (
	plainestWallet = `SELECT user_id, balance, updated_at FROM plainest_wallets WHERE guild_id = $1 AND user_id = $2`

	plainestBoard = `
		SELECT user_id, balance FROM wallets
		WHERE guild_id = $1 ORDER BY -balance, length(user_id), user_id LIMIT 26`

	plainestCases = `
		SELECT id, number, user_id, moderator_id, type, reason, status, source, created_at, updated_at FROM cases
		WHERE guild_id = $1 AND type = 'warn' AND status = 'active' ORDER BY created_at DESC, id DESC LIMIT 26`

	plainestLedger = `
		SELECT id, user_id, delta, balance_after, reason, note, created_at FROM ledger_entries
		WHERE guild_id = $1 ORDER BY created_at DESC, id DESC LIMIT 26`

	plainestAdjustment = `
		WITH changed AS (
			UPDATE plainest_wallets SET balance = balance + $3, updated_at = now()
			WHERE guild_id = $1 AND user_id = $2 AND balance + $3 >= 0
			RETURNING balance, updated_at
		), entered AS (
			INSERT INTO plainest_ledger (guild_id, user_id, delta, balance_after, reason, created_at)
			SELECT $1, $2, $3, balance, $4, updated_at FROM changed
			RETURNING id
		)`

	plainestChange = plainestAdjustment + `
		SELECT id, balance, updated_at FROM changed, entered`

	plainestKeyedChange = plainestAdjustment + `, kept AS (
			INSERT INTO plainest_keys (token, key, answer)
			SELECT $5, $6, json_build_object('user_id', $2::text, 'balance', balance, 'delta', $3::bigint, 'updated_at', updated_at, 'id', id)
			FROM changed, entered
		)
		SELECT id, balance, updated_at FROM changed, entered`
)

// plainest is the program that the server is compared with: net/http, lib/pq, tokens in memory,
// bodies checked by hand, one statement per request without a transaction; no rate limits, no log,
// no events, no scopes.
type plainest struct {
	pool   *sql.DB
	guilds map[string]string // guilds by token
}

// servePlainest serves the plainest program until ctx ends.
func servePlainest(ctx context.Context, address string) (err error) {
	p := plainest{}
	if err := json.NewDecoder(os.Stdin).Decode(&p.guilds); err != nil {
		return err
	}
	// Statements are prepared once per connection, as by the server.
	if p.pool, err = db.OpenSQL(os.Getenv("GUILDHALL_DATABASE_URL"), "bench-plainest", 32); err != nil {
		return err
	}
	defer p.pool.Close()
	routes := http.NewServeMux()
	for pattern, handle := range map[string]func(w http.ResponseWriter, r *http.Request, guild string) error{
		"GET /api/v1/economy/wallet/{user}": p.wallet,
		"GET /api/v1/economy/leaderboard":   plainestList(p, plainestBoard, (*plainestRank).columns),
		"GET /api/v1/economy/ledger":        plainestList(p, plainestLedger, (*plainestEntry).columns),
		"GET /api/v1/cases":                 plainestList(p, plainestCases, (*plainestCase).columns),
		"POST /api/v1/economy/adjust":       p.adjust,
	} {
		routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			guild, known := p.guilds[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
			if !known {
				http.Error(w, "no such token", http.StatusUnauthorized)
			} else if err := handle(w, r, guild); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	s := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Handler: routes}
	context.AfterFunc(ctx, func() { s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p plainest) wallet(w http.ResponseWriter, r *http.Request, guild string) error {
	var found struct {
		UserID    string    `json:"user_id"`
		Balance   int64     `json:"balance"`
		UpdatedAt wire.Time `json:"updated_at"`
	}
	if err := p.pool.QueryRowContext(r.Context(), plainestWallet, guild, r.PathValue("user")).
		Scan(&found.UserID, &found.Balance, &found.UpdatedAt.Time); err != nil {
		return err
	}
	return p.respond(w, found)
}

func (p plainest) respond(w http.ResponseWriter, data any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"data": data})
}

type plainestRank struct {
	Rank    int    `json:"rank"`
	UserID  string `json:"user_id"`
	Balance int64  `json:"balance"`
}

func (e *plainestRank) columns(number int) []any {
	e.Rank = number
	return []any{&e.UserID, &e.Balance}
}

type plainestEntry struct {
	ID           string    `json:"id"`
	UserID       string    `json:"user_id"`
	Delta        int64     `json:"delta"`
	BalanceAfter int64     `json:"balance_after"`
	Reason       *string   `json:"reason"`
	Note         string    `json:"note"`
	CreatedAt    wire.Time `json:"created_at"`
}

func (e *plainestEntry) columns(int) []any {
	return []any{&e.ID, &e.UserID, &e.Delta, &e.BalanceAfter, &e.Reason, &e.Note, &e.CreatedAt.Time}
}

type plainestCase struct {
	ID          string    `json:"id"`
	Number      int64     `json:"number"`
	UserID      string    `json:"user_id"`
	ModeratorID string    `json:"moderator_id"`
	Type        string    `json:"type"`
	Reason      *string   `json:"reason"`
	Status      string    `json:"status"`
	Source      string    `json:"source"`
	CreatedAt   wire.Time `json:"created_at"`
	UpdatedAt   wire.Time `json:"updated_at"`
}

func (c *plainestCase) columns(int) []any {
	return []any{&c.ID, &c.Number, &c.UserID, &c.ModeratorID, &c.Type, &c.Reason, &c.Status, &c.Source, &c.CreatedAt.Time, &c.UpdatedAt.Time}
}

// plainestList returns a handler that responds with the rows of a statement; columns returns the
// scan targets of a row, given its number.
func plainestList[T any](p plainest, statement string, columns func(*T, int) []any) func(http.ResponseWriter, *http.Request, string) error {
	return func(w http.ResponseWriter, r *http.Request, guild string) error {
		rows, err := p.pool.QueryContext(r.Context(), statement, guild)
		if err != nil {
			return err
		}
		defer rows.Close()
		list := make([]T, 0, 26)
		for rows.Next() {
			var row T
			if err := rows.Scan(columns(&row, len(list)+1)...); err != nil {
				return err
			}
			list = append(list, row)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return p.respond(w, list[:min(25, len(list))])
	}
}

func (p plainest) adjust(w http.ResponseWriter, r *http.Request, guild string) error {
	var asked struct {
		UserID string  `json:"user_id"`
		Delta  int64   `json:"delta"`
		Reason *string `json:"reason"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&asked); err != nil {
		return err
	}
	const limit = 1<<53 - 1
	named := asked.UserID != "" && len(asked.UserID) <= 20 && strings.Trim(asked.UserID, "0123456789") == ""
	if !named || asked.Delta > limit || asked.Delta < -limit {
		return errors.New("a user_id of digits and a delta are needed")
	}
	statement, args := plainestChange, []any{guild, asked.UserID, asked.Delta, asked.Reason}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		statement, args = plainestKeyedChange, append(args, r.Header.Get("Authorization")[7:], key)
	}
	var made struct {
		ID        int64     `json:"id"`
		UserID    string    `json:"user_id"`
		Delta     int64     `json:"delta"`
		Balance   int64     `json:"balance"`
		Reason    *string   `json:"reason"`
		UpdatedAt wire.Time `json:"updated_at"`
	}
	made.UserID, made.Delta, made.Reason = asked.UserID, asked.Delta, asked.Reason
	err := p.pool.QueryRowContext(r.Context(), statement, args...).Scan(&made.ID, &made.Balance, &made.UpdatedAt.Time)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("the wallet of %s does not cover it", asked.UserID)
	}
	if err != nil {
		return err
	}
	return p.respond(w, made)
}
