package api

import (
	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/members"
	"guildhall/internal/service/meta"
	"guildhall/internal/service/network"
	"guildhall/internal/service/records"
	"guildhall/internal/service/streams"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/webhooks"
	"guildhall/internal/service/work"
)

// Services are the domain services that need dependencies.
type Services struct {
	Tickets   *tickets.Service
	Giveaways *giveaways.Service
	Webhooks  *webhooks.Service
	Streams   *streams.Service
}

// NewServices returns the services. They need the chat platform, the sealer of stored responses,
// and the configuration of webhooks.
func NewServices(platform chat.Platform, sealer idempotency.Sealer, hooks webhooks.Config) (s Services, err error) {
	s.Giveaways = &giveaways.Service{Chat: platform}
	s.Streams = &streams.Service{Waiters: hooks.Waiters}
	if s.Webhooks, err = webhooks.New(hooks); err != nil {
		return s, err
	}
	s.Tickets, err = tickets.New(tickets.Config{DB: hooks.DB, Chat: platform, Keys: TicketKeys{Keys: idempotency.Keys{Sealer: sealer}}})
	return s, err
}

// Aliases, because every domain calls its struct Service and an embedded field takes the name of
// its type.
type (
	metaOps      = meta.Service
	guildsOps    = guilds.Service
	casesOps     = cases.Service
	economyOps   = economy.Service
	levellingOps = levelling.Service
	networkOps   = network.Service
	ticketsOps   = tickets.Service
	giveawaysOps = giveaways.Service
	webhooksOps  = webhooks.Service
	streamsOps   = streams.Service
	workOps      = work.Service
	recordsOps   = records.Service
	membersOps   = members.Service
)

// operations implements every operation of openapi.yaml by embedding. It does not compile if an
// operation is missing or is implemented twice.
type operations struct {
	*metaOps
	*guildsOps
	*casesOps
	*economyOps
	*levellingOps
	*networkOps
	*ticketsOps
	*giveawaysOps
	*webhooksOps
	*streamsOps
	*workOps
	*recordsOps
	*membersOps
}

var _ gen.StrictServerInterface = operations{}

// Work returns the service that handles the answers of the operator's bot.
func Work() *work.Service {
	return &work.Service{Tickets: tickets.Answered, Giveaways: giveaways.Answered}
}

func newOperations(cfg Config, h batch.Host) operations {
	return operations{
		metaOps:      &meta.Service{Env: cfg.Env, Quotas: cfg.Quotas},
		guildsOps:    &guilds.Service{Curve: records.Curve},
		casesOps:     &cases.Service{},
		economyOps:   economy.New(h),
		levellingOps: levelling.New(h),
		networkOps:   &network.Service{},
		ticketsOps:   cfg.Tickets,
		giveawaysOps: cfg.Giveaways,
		webhooksOps:  cfg.Webhooks,
		streamsOps:   cfg.Streams,
		workOps:      Work(),
		recordsOps:   &records.Service{},
		membersOps:   &members.Service{},
	}
}
