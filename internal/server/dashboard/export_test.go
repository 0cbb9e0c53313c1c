package dashboard

// Routes returns the pattern of every path.
func Routes() (patterns []string) {
	add := func(pattern string, _ handler) { patterns = append(patterns, pattern) }
	(&Server{}).register(add, add, add)
	return patterns
}
