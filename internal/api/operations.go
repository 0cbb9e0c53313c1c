package api

import (
	"guildhall/gen"
	"guildhall/internal/cases"
	"guildhall/internal/economy"
	"guildhall/internal/giveaways"
	"guildhall/internal/guilds"
	"guildhall/internal/levelling"
	"guildhall/internal/meta"
	"guildhall/internal/network"
	"guildhall/internal/tickets"
	"guildhall/internal/webhooks"
)

// Services are the domains that need something of the host.
type Services struct {
	Giveaways *giveaways.Service
	Tickets   *tickets.Service
	Webhooks  *webhooks.Service
}

// The aliases exist because every domain calls its struct Service, and an
// embedded field takes the name of its type.
type (
	metaOps      = meta.Service
	guildsOps    = guilds.Service
	casesOps     = cases.Service
	economyOps   = economy.Service
	levellingOps = levelling.Service
	ticketsOps   = tickets.Service
	giveawaysOps = giveaways.Service
	networkOps   = network.Service
	webhooksOps  = webhooks.Service
)

// operations is every operation of openapi.yaml. A missing method, or one
// implemented in two domains, does not compile.
type operations struct {
	*metaOps
	*guildsOps
	*casesOps
	*economyOps
	*levellingOps
	*ticketsOps
	*giveawaysOps
	*networkOps
	*webhooksOps
}

var _ gen.StrictServerInterface = operations{}

func newOperations(cfg Config) operations {
	return operations{
		metaOps:      &meta.Service{Env: cfg.Env},
		guildsOps:    &guilds.Service{},
		casesOps:     &cases.Service{},
		economyOps:   &economy.Service{},
		levellingOps: &levelling.Service{},
		ticketsOps:   cfg.Tickets,
		giveawaysOps: cfg.Giveaways,
		networkOps:   &network.Service{},
		webhooksOps:  cfg.Webhooks,
	}
}
