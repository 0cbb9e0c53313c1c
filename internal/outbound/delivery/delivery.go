// Package delivery brings recorded events to the endpoints that subscribe to them, signed, and
// retries until the endpoint has received the event.
//
// The package has three parts, and the file names begin with the part: push_*.go sends events to
// endpoints, fetch*.go serves endpoints that fetch their events, and stream*.go serves the streams
// of the operator's bot. The other files belong to all three parts: changes made by requests
// (manage.go), background work (maintenance.go, retention.go), gauges (metrics.go) and the planning
// of statements (statement.go).
//
// The path of a pushed event, in the order in which it happens:
//
//   - A unit of work records an event (package event): one row of webhook_events
//     and one row of webhook_deliveries for each subscribed endpoint, in the same
//     transaction. Such a delivery is fresh. The unit of work commits, and Wake tells
//     the claim loop of this process to poll the guild.
//
//   - The claim loop (push_deliverer.go) polls for endpoints that have something to send
//     (pollGuilds, pollAll in push_claim.go): endpoints with fresh deliveries, and endpoints
//     whose row of webhook_schedule is due. A poll takes no locks and reads a bounded
//     number of index entries, however many deliveries are waiting.
//
//   - The limiter (push_limiter.go) shares the free slots among the endpoints: by guild first,
//     then by endpoint.
//
//   - The claim locks the schedules of the chosen endpoints and leases some deliveries
//     of each. The fresh deliveries of blocked or disabled endpoints move into the queue
//     (lockIdle, take). The sends start while the claim still holds the locks: a unit of work
//     that disables or deletes an endpoint waits for the lock of the schedule, so no send
//     starts after that unit of work has committed.
//
//   - A send (push_send.go) holds no database connection. Pure functions (push_rules.go,
//     push_schedule.go, push_outcome.go) decide what follows from its outcome.
//
//   - Results are recorded in batches (push_results.go), in one transaction: the state of the
//     delivery, if the delivery still has the lease under which it was sent; the row of the
//     attempt log; and the new health of the endpoint (push_learn.go).
//
// A pending delivery is in one of three places. The delivery is fresh; or a worker holds a lease on
// the delivery; or the delivery is queued, and then the schedule of its endpoint has a next_due
// that is not later than the delivery's due time. A function that moves a delivery into the queue
// holds the lock of that schedule. Each of the three places has an index, so no delivery is lost
// when a worker dies, and no worker has to scan the table. guildhall doctor names the endpoints
// that break this rule (stranded.go).
//
// The schedule of an endpoint also says what happens to its waiting deliveries: they are sent, held
// or dropped. Disabling, enabling and deleting an endpoint (manage.go) change that one row. The
// deliveries follow in chunks (maintenance.go), and so does all other work that is not urgent: the
// retention of the log (retention.go) and the gauges.
package delivery
