package collect

import "time"

// item is one thing to be done. Once it is done, it is its caller's.
type item[T any] struct {
	value   T
	by      Caller
	subject string
	came    time.Time

	ready, taken bool // guarded by the collector's mutex
	done         chan struct{}
	err          error // written before done is closed
}

// turns are items that are handed out in turn: by the first of their names, and those of
// one name by the next.
type turns[T any] struct {
	names []string // the next first
	below map[string]*turns[T]
	items []*item[T] // without a further name; the oldest first
}

func (q *turns[T]) empty() bool { return len(q.names)+len(q.items) == 0 }

func (q *turns[T]) push(it *item[T], names ...string) {
	if len(names) == 0 {
		q.items = append(q.items, it)
		return
	}
	next := q.below[names[0]]
	if next == nil {
		next = &turns[T]{}
		defer q.put(names[0], next)
	}
	next.push(it, names[1:]...)
}

// pop takes out the next one that was not taken back; nil when there is none.
func (q *turns[T]) pop() *item[T] {
	for len(q.items) > 0 {
		it := q.items[0]
		q.items = q.items[1:]
		if it.ready {
			return it
		}
	}
	for len(q.names) > 0 {
		name, next := q.shift()
		it := next.pop()
		q.put(name, next)
		if it != nil {
			return it
		}
	}
	return nil
}

// shift takes out the name whose turn it is, with what stands below it.
func (q *turns[T]) shift() (name string, below *turns[T]) {
	name = q.names[0]
	below = q.below[name]
	q.names = q.names[1:]
	delete(q.below, name)
	return name, below
}

// put puts a name behind the others, unless nothing stands below it.
func (q *turns[T]) put(name string, below *turns[T]) {
	if below.empty() {
		return
	}
	if q.below == nil {
		q.below = map[string]*turns[T]{}
	}
	q.below[name] = below
	q.names = append(q.names, name)
}
