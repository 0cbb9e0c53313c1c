package main

import "go.yaml.in/yaml/v3"

// The functions of this file work on YAML mappings. All of them accept nil for an absent mapping.

func get(m *yaml.Node, key string) *yaml.Node {
	var found *yaml.Node
	pairs(m, func(k, v *yaml.Node) {
		if k.Value == key {
			found = v
		}
	})
	return found
}

func pairs(m *yaml.Node, fn func(k, v *yaml.Node)) {
	if m == nil || m.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		fn(m.Content[i], m.Content[i+1])
	}
}

func remove(m *yaml.Node, key string) {
	if i := index(m, key); i >= 0 {
		m.Content = append(m.Content[:i:i], m.Content[i+2:]...)
	}
}

func index(m *yaml.Node, key string) int {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

func rename(m *yaml.Node, from, to string) {
	if i := index(m, from); i >= 0 {
		m.Content[i] = text(to)
	}
}

// insertAfter adds a pair after the pair with the key `after`, or at the end.
func insertAfter(m *yaml.Node, after, key string, value *yaml.Node) {
	at := len(m.Content)
	if i := index(m, after); i >= 0 {
		at = i + 2
	}
	rest := append([]*yaml.Node{text(key), value}, m.Content[at:]...)
	m.Content = append(m.Content[:at:at], rest...)
}

func items(seq *yaml.Node) []*yaml.Node {
	if seq == nil {
		return nil
	}
	return seq.Content
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func list(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

func clone(n *yaml.Node) *yaml.Node {
	c := *n
	return &c
}
