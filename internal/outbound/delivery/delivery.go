// Package delivery brings recorded events to the endpoints that listen to them,
// signed, until they are received.
//
// Three trades share the package, and the files are named by them: push_*.go sends
// events to endpoints, fetch*.go serves endpoints that fetch their events, and
// stream*.go serves the streams of the operator's bot. The other files belong to all
// three: what the domain of webhooks changes (manage.go), what follows in the background
// (maintenance.go, retention.go), gauges (metrics.go) and how statements are planned
// (statement.go).
//
// The path of a pushed event, in the order in which it happens:
//
//   - A unit of work records an event (package event): one row of webhook_events
//     and one of webhook_deliveries for each endpoint that listens, in the same
//     transaction. Such a delivery is fresh. The unit commits, and the bell of
//     this process rings for its guild (Wake).
//
//   - The claim loop (push_deliverer.go) looks which endpoints have something to do
//     (pollGuilds, pollAll in push_claim.go): those with fresh deliveries, and those whose
//     row of webhook_schedule says that they are due. A look locks nothing and
//     reads a bounded number of index entries, whatever waits.
//
//   - The limiter (push_limiter.go) shares the free slots among them: by guild first,
//     then by endpoint.
//
//   - The claim locks the schedules of the chosen endpoints and leases deliveries
//     of each; what is fresh for those that are blocked or disabled it queues
//     (lockIdle, take). While it still holds the locks, the sends begin: a unit
//     that disables or deletes an endpoint waits for its schedule, so nothing
//     begins after that unit has committed.
//
//   - A send (push_send.go) holds no connection. Pure functions (push_rules.go, push_schedule.go,
//     push_outcome.go) judge what became of it.
//
//   - Results are settled in batches (push_results.go): the state of the delivery, if
//     its lease is still the one it was sent under, the row of the attempt log,
//     and what was learnt of the endpoint (push_learn.go), in one transaction.
//
// A delivery that is pending is in one of three places. It is fresh; or a worker
// holds a lease on it; or it is queued, and then its endpoint's schedule has a
// next_due that is not later than the moment it may go. A function that moves a
// delivery into the queue holds the lock of that schedule. An index leads to each of
// the three, so nothing is lost when a worker dies, and nobody has to search. doctor names
// endpoints for which that does not hold (stranded.go).
//
// An endpoint's schedule also says what becomes of what waits for it: it is sent,
// held or given up. Disabling, enabling and deleting an endpoint (manage.go)
// change that one row; the deliveries follow a chunk at a time (maintenance.go),
// as does everything else that has time: the log's retention (retention.go), the
// gauges.
package delivery
