package batcher

// turns hands out items in turn: by the first of their names, and within one name by the next
// name. It is a tree with one level for each name.
type turns[T any] struct {
	name  string
	next  []*turns[T] // subtrees in the order of their turns; a subtree that was shifted out stays in below
	below map[string]*turns[T]
	items []*item[T] // items pushed without a further name, in order of arrival
}

// push adds an item under names.
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

// pop removes and returns the next item that was not withdrawn, or nil.
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

// shift removes and returns the subtree whose turn it is.
func (q *turns[T]) shift() (first *turns[T]) {
	first, q.next = q.next[0], q.next[1:]
	return first
}

// put appends a subtree to the turns, or drops it when it is empty.
func (q *turns[T]) put(first *turns[T]) {
	if len(first.items)+len(first.next) > 0 {
		q.next = append(q.next, first)
	} else {
		delete(q.below, first.name)
	}
}
