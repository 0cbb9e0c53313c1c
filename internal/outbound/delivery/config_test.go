package delivery

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
)

// complete keeps the given settings, fills in the missing ones, and returns an error if a setting
// that a Deliverer needs is missing.
func TestWhatAConfigurationLeavesOutIsFilledIn(t *testing.T) {
	t.Parallel()
	needed := Config{DB: &db.DB{}, Box: sealtest.Box(t, 7), Guard: egress.NewGuard(egresstest.Loopback, nil)}
	filled, err := needed.complete()
	if err != nil || filled.Slots != defaultSlots || !reflect.DeepEqual(filled.Schedule, DefaultSchedule()) ||
		filled.Jitter == nil || filled.Log == nil {
		t.Errorf("filled in: %+v, %v", filled, err)
	}

	given := needed
	given.Slots, given.Schedule, given.Log = 1, Schedule{time.Second}, slog.Default()
	given.Jitter = func() float64 { return 2 }
	same, err := given.complete()
	if err != nil || same.Slots != 1 || !reflect.DeepEqual(same.Schedule, given.Schedule) || same.Jitter() != 2 || same.Log != given.Log {
		t.Errorf("given: %+v, %v", same, err)
	}

	for what, change := range map[string]func(*Config){
		"a database": func(c *Config) { c.DB = nil },
		"a box":      func(c *Config) { c.Box = nil },
		"a guard":    func(c *Config) { c.Guard = nil },
		"slots":      func(c *Config) { c.Slots = -1 },
	} {
		without := needed
		change(&without)
		if _, err := without.complete(); err == nil {
			t.Errorf("complete without %s", what)
		}
	}
}
