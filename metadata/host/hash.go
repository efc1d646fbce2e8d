package host

import "slices"

// Replicas at equal applied index are byte-identical. The leader has them compared from time to time: it proposes a
// hash check, every replica hashes its rows as of that very entry and reports, and when a majority of the voters had
// the same hash the leader proposes it for verification. A replica that had another one stops.

// tickHash proposes the next hash check when it is due.
func (c *core) tickHash(r *replica) {
	if c.cfg.HashTicks < 0 || !r.isReady() {
		return
	}
	if r.hashTicks--; r.hashTicks > 0 {
		return
	}
	r.hashTicks = c.cfg.HashTicks
	if r.applied.index <= r.hashApplied {
		return
	}
	c.checkHashes(r)
}

func (c *core) checkHashes(r *replica) {
	// Two entries follow for each comparison: the check and the verification.
	r.hashApplied = r.applied.index + 2
	c.metrics.hashChecks.Add(1)
	c.proposeOwn(r, appendEntryData(nil, entryHashCheck, c.nextNonce(), nil))
}

// hashComputed takes this replica's own hash.
func (c *core) hashComputed(r *replica, h hashAt) {
	if r.stopped {
		return
	}
	r.hashes = keepLast(append(r.hashes, h))
	for _, v := range slices.Clone(r.verify) {
		c.hashVerify(r, v)
	}
	if r.stopped || r.lead == 0 {
		return
	}
	rep := hashReport{from: r.id, to: r.lead, index: h.index, hash: h.hash}
	if r.leader {
		c.hashReported(r, rep)
		return
	}
	if node := r.nodes[r.lead]; node != 0 {
		c.out.msgs = append(c.out.msgs, outMsg{node: node, group: r.group, r: r, hash: rep})
	}
}

// hashReported counts what replicas had; a majority's hash is proposed once.
func (c *core) hashReported(r *replica, rep hashReport) {
	m := r.member(rep.from)
	if !r.leader || m == nil || m.Learner {
		return
	}
	at := r.reports[rep.index]
	if at == nil {
		for len(r.reports) >= maxHashesKept { // the oldest comparison goes
			oldest := rep.index
			for i := range r.reports {
				oldest = min(oldest, i)
			}
			if oldest == rep.index {
				return
			}
			delete(r.reports, oldest)
		}
		at = make(map[uint64]uint64)
		r.reports[rep.index] = at
	}
	if _, twice := at[rep.from]; twice {
		return
	}
	at[rep.from] = rep.hash
	same := 0
	for _, h := range at {
		if h == rep.hash {
			same++
		}
	}
	if same == r.voters()/2+1 {
		c.proposeOwn(r, hashVerifyData(c.nextNonce(), rep.index, rep.hash))
	}
}

// hashVerify compares what a majority had with our own; our own may still be under way.
func (c *core) hashVerify(r *replica, v hashAt) {
	own := slices.IndexFunc(r.hashes, func(h hashAt) bool { return h.index == v.index })
	r.verify = slices.DeleteFunc(r.verify, func(h hashAt) bool { return h.index == v.index })
	if own < 0 {
		r.verify = keepLast(append(r.verify, v))
		return
	}
	if r.hashes[own].hash == v.hash {
		return
	}
	c.metrics.hashMismatches.Add(1)
	c.stop(r, "hash mismatch: this replica's rows differ from a majority's")
}

func keepLast(hs []hashAt) []hashAt {
	if n := len(hs) - maxHashesKept; n > 0 {
		hs = slices.Delete(hs, 0, n)
	}
	return hs
}
