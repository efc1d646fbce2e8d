package host

import "objstore/internal/ident"

// truncate cuts the logs below what the state store has flushed (durable: applied index by group). What every member
// has is not needed by anybody; for the sake of members that lag, more is kept up to the limits. A follower knows what
// every member has from the leader's heartbeats.
func (c *core) truncate(durable map[ident.Group]uint64) {
	l := c.cfg.Limits
	step := min(64, l.LogKeepEntries/4+1) // each cut leaves a range tombstone: not for a few entries
	for _, r := range c.order {
		if r.stopped || len(r.held) > 0 {
			continue
		}
		n := r.log.last.index - r.log.trunc.index
		if n == 0 {
			continue
		}
		keep := min(n, l.LogKeepEntries)
		if per := r.log.bytes/n + 1; r.log.bytes > l.LogKeepBytes {
			keep = min(keep, l.LogKeepBytes/per)
		}
		to := min(max(r.minMatch, r.log.last.index-keep), durable[r.group], r.applied.index)
		if to < r.log.trunc.index+step {
			continue
		}
		term, err := r.log.Term(to)
		if err != nil {
			c.stop(r, "log: "+err.Error())
			continue
		}
		c.cut(r, entryID{to, term})
	}
}

func (c *core) cut(r *replica, to entryID) {
	l := r.log
	gone := to.index - l.trunc.index
	l.bytes -= l.bytes / (l.last.index - l.trunc.index) * gone
	l.trunc = to
	l.evict(to.index, -1)
	c.out.appends = append(c.out.appends, &appendTask{r: r, trunc: &to})
	c.metrics.truncations.Add(1)
	c.event(EventTruncated, r, to.index, "")
}

// logPressure reports whether some log is longer than its limits and waits for the state store to flush.
func (c *core) logPressure() bool {
	l := c.cfg.Limits
	for _, r := range c.order {
		if !r.stopped && (r.log.bytes > 2*l.LogKeepBytes || r.log.last.index-r.log.trunc.index > 2*l.LogKeepEntries) {
			return true
		}
	}
	return false
}
