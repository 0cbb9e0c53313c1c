package collect

// turns are items that are handed out in turn: by the first of their names, and those of
// one name by the next.
type turns[T any] struct {
	name  string
	next  []*turns[T] // whose turn it is; what was taken out is below all the same
	below map[string]*turns[T]
	items []*item[T] // without a further name; the oldest first
}

func (q *turns[T]) push(it *item[T], names ...string) {
	if len(names) == 0 {
		q.items = append(q.items, it)
		return
	}
	under := q.below[names[0]]
	if under == nil {
		under = &turns[T]{name: names[0], below: map[string]*turns[T]{}}
		q.below[under.name] = under
		q.next = append(q.next, under)
	}
	under.push(it, names[1:]...)
}

// pop takes out the next item that was not taken back; nil when there is none.
func (q *turns[T]) pop() (it *item[T]) {
	for it == nil && len(q.items) > 0 {
		if it, q.items = q.items[0], q.items[1:]; !it.ready {
			it = nil
		}
	}
	for it == nil && len(q.next) > 0 {
		first := q.shift()
		it = first.pop()
		q.put(first)
	}
	return it
}

// shift takes out whose turn it is.
func (q *turns[T]) shift() (first *turns[T]) {
	first, q.next = q.next[0], q.next[1:]
	return first
}

// put puts it behind the others, unless nothing stands below it.
func (q *turns[T]) put(first *turns[T]) {
	if len(first.items)+len(first.next) > 0 {
		q.next = append(q.next, first)
	} else {
		delete(q.below, first.name)
	}
}
