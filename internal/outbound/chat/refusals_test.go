package chat_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
)

// logged returns a client with production settings, and its log.
func logged(t *testing.T, s *chattest.Server, cfg chat.Config) (*chat.Discord, *testutil.Log) {
	t.Helper()
	log := &testutil.Log{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	return connectAs(t, s, cfg), log
}

// counter is a Counter whose counts a test can set.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) Count(_ context.Context, n int, keys ...string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	sums := make([]int, len(keys))
	for i, key := range keys {
		c.counts[key] += n
		sums[i] = c.counts[key]
	}
	return sums
}

// bot returns the key of the bot's count, which is the shortest key.
func (c *counter) bot() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	bot := strings.Repeat("x", 99)
	for key := range c.counts {
		if len(key) < len(bot) {
			bot = key
		}
	}
	return bot
}

func (c *counter) setCount(key string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[key] = n
}

func send(d *chat.Discord, ctx context.Context, guild, to string) error { //nolint:revive // the client reads first
	_, err := d.SendMessage(ctx, chat.Message{Channel: chat.Channel{GuildID: guild, ID: to}, Content: "x"})
	return err
}

// TestNoMemoryOfRefusals: a call that was refused is made again by the next request, and each
// lasting refusal is logged and counted. RELIABILITY.md, Messages.
func TestNoMemoryOfRefusals(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, code := range []int{chat.CodeUnknownChannel, chat.CodeMissingAccess, chat.CodeMissingPermission} {
		s, reg := chattest.New(t), prometheus.NewRegistry()
		d, log := logged(t, s, chat.Config{Metrics: reg})
		s.Next(chattest.Refuse(403, code, "no"))
		if f := failure(t, send(d, ctx, guild, "1")); f.Code != code || !f.Lasting() {
			t.Errorf("got %+v", f)
		}
		if err := send(d, ctx, guild, "1"); err != nil {
			t.Errorf("permission is back: got %v", err)
		}
		if n := strings.Count(log.String(), "channel_id=1"); n != 1 {
			t.Errorf("%d lines about the refusal", n)
		}
		if refused := testutil.Metric(t, reg, "guildhall_chat_calls_total", "outcome=refused"); refused != 1 {
			t.Errorf("%v refused calls are counted, want 1", refused)
		}
	}
}

// TestRefusalBudgets: a guild's refusals stop only that guild's calls. The bot's refusals stop
// background calls before the others. RELIABILITY.md, Messages.
func TestRefusalBudgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := chattest.New(t)
	counts := &counter{}
	d, log := logged(t, s, chat.Config{Refusals: counts})
	s.Give("1", "1")
	s.Give("2", "2")
	s.Give("3", "3")
	s.In("1", chattest.Refuse(403, chat.CodeMissingPermission, "no"))
	if err := send(d, ctx, "1", "1"); err == nil {
		t.Fatal("no refusal")
	}
	bot := counts.bot()
	counts.setCount(bot+":1", chat.GuildBudget-1)
	if f := failure(t, send(d, ctx, "1", "1")); f.Code != chat.CodeMissingPermission {
		t.Errorf("before the budget is spent: got %+v", f)
	}
	calls := len(s.Calls())
	for range 20 {
		if f := failure(t, send(d, ctx, "1", "1")); f.Lasting() || f.Uncertain || f.Status != 0 {
			t.Errorf("after it: got %+v, want a call that was not made", f)
		}
	}
	if n := len(s.Calls()); n != calls {
		t.Errorf("%d calls of a guild whose budget is spent", n-calls)
	}
	if n := strings.Count(log.String(), "guild_id=1 refused=500"); n != 1 {
		t.Errorf("%d lines about the spent budget", n)
	}
	if err := send(d, ctx, "2", "2"); err != nil {
		t.Errorf("another guild: got %v", err)
	}

	counts.setCount(bot, chat.BackgroundBudget)
	if err := send(d, chat.Background(ctx), "2", "2"); err == nil {
		t.Error("background calls go on")
	}
	if err := send(d, ctx, "2", "2"); err != nil {
		t.Errorf("a call that somebody waits for: got %v", err)
	}
	counts.setCount(bot, chat.BotBudget)
	if f := failure(t, send(d, ctx, "3", "3")); f.Lasting() || f.Uncertain || f.Status != 0 {
		t.Errorf("got %+v, want a call that was not made", f)
	}
}

// TestWhatCounts: only responses that count towards a ban are counted.
func TestWhatCounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		behave     chattest.Behaviour
		bot, guild int
	}{
		"200":                    {nil, 0, 0},
		"404":                    {chattest.Refuse(404, 10003, "no"), 0, 0},
		"400":                    {chattest.Refuse(400, 50035, "no"), 0, 0},
		"401, no guild's doing":  {chattest.Refuse(401, 0, "no"), 1, 0},
		"403":                    {chattest.Refuse(403, 50001, "no"), 1, 1},
		"429":                    {chattest.Limited(time.Minute, "user"), 1, 1},
		"429 of the whole bot":   {chattest.Limited(time.Minute, "global"), 1, 1},
		"429 shared with others": {chattest.Limited(time.Minute, "shared"), 0, 0},
		"500":                    {chattest.Refuse(500, 0, "no"), 0, 0},
	} {
		s := chattest.New(t)
		counts := &counter{}
		d := connectAs(t, s, chat.Config{Log: slog.New(slog.DiscardHandler), Refusals: counts})
		if tc.behave != nil {
			s.In(channel, tc.behave)
		}
		_ = send(d, context.Background(), guild, channel)
		bot := counts.bot()
		if got := counts.Count(context.Background(), 0, bot, bot+":"+guild); got[0] != tc.bot || got[1] != tc.guild {
			t.Errorf("%s counts %v, want %d for the bot and %d for the guild", name, got, tc.bot, tc.guild)
		}
	}
}

// TestRefusalsOfAllNodes: nodes that share a store stop at the same count. RELIABILITY.md,
// Messages.
func TestRefusalsOfAllNodes(t *testing.T) {
	t.Parallel()
	store, s := miniredis.RunT(t), chattest.New(t)
	s.In(channel, chattest.Refuse(403, chat.CodeMissingPermission, "no"))
	var nodes [2]*chat.Discord
	var counts *ratelimit.Windows
	for i := range nodes {
		var err error
		counts, err = ratelimit.NewWindows(ratelimit.Config{RedisURL: "redis://" + store.Addr(), Budget: 10 * time.Second}, chat.RefusalWindow)
		if err != nil {
			t.Fatal(err)
		}
		defer counts.Close()
		nodes[i] = connectAs(t, s, chat.Config{Log: slog.New(slog.DiscardHandler), Refusals: counts})
	}
	if err := send(nodes[0], t.Context(), guild, channel); err == nil {
		t.Fatal("no refusal")
	}
	for _, key := range store.Keys() {
		if strings.HasSuffix(key, ":"+guild) {
			counts.Count(t.Context(), chat.GuildBudget-1, strings.TrimPrefix(key, "guildhall:window:"))
		}
	}
	calls := len(s.Calls())
	for _, d := range nodes {
		if f := failure(t, send(d, t.Context(), guild, channel)); f.Status != 0 {
			t.Errorf("got %+v", f)
		}
	}
	if n := len(s.Calls()); n != calls {
		t.Errorf("%d calls after the budget was spent", n-calls)
	}
}

// TestRefusedToken: while the bot's token is refused only one call at a time is made, and no
// guild's channel gets the blame.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := chattest.New(t)
	s.Next(chattest.Refuse(401, 0, "401: Unauthorized"), chattest.Refuse(401, 0, "401: Unauthorized"))
	d, log := logged(t, s, chat.Config{})
	calls := func(want int) {
		t.Helper()
		if n := len(s.Calls()); n != want {
			t.Fatalf("%d calls, want %d: %v", n, want, s.Calls())
		}
	}
	for i := range 20 {
		if f := failure(t, send(d, ctx, guild, fmt.Sprint(1+i%9))); f.Lasting() || f.Uncertain {
			t.Fatalf("got %+v", f)
		}
	}
	calls(1)
	d.Later(61 * time.Second)
	for range 5 {
		if err := send(d, ctx, guild, "1"); err == nil {
			t.Fatal("the second refusal was overlooked")
		}
	}
	calls(2)
	d.Later(122 * time.Second)
	for _, to := range []string{"1", "2"} {
		if err := send(d, ctx, guild, to); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(log.String(), "level=ERROR") != 2 || strings.Count(log.String(), "accepts the bot's token again") != 1 {
		t.Errorf("the log: %s", log.String())
	}
}
