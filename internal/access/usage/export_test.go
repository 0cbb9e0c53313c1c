package usage

// Messages returns the bytes of the messages that wait to be written.
func Messages(c *Counter) (bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.refusals {
		for _, r := range list {
			bytes += len(r.Message)
		}
	}
	return bytes
}
