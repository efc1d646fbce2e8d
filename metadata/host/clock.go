package host

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"objstore/internal/ident"
)

// clockRule watches this node's clock against its peers' (PROTOCOLS D): the leader's clock stamps entries, so a
// leader whose clock is more than 5 s off its peers' median hands leadership over and proposes nothing.
type clockRule struct {
	peers  map[ident.Node]clockSample
	bad    bool
	offset int64 // median of the peers' clocks minus ours, ms
	wait   int   // ticks until the next attempt to hand over
	buf    []int64
}

type clockSample struct {
	offset int64 // peer's clock minus ours
	at     int64 // our clock
}

// sample notes a peer's clock; the time a batch travels is far below the limit and not corrected for.
func (k *clockRule) sample(n ident.Node, offset, nowMS int64) {
	if _, known := k.peers[n]; known || len(k.peers) < maxGroupsPerHost {
		k.peers[n] = clockSample{offset, nowMS}
	}
}

func (k *clockRule) tick(c *core) {
	k.buf = k.buf[:0]
	for n, s := range k.peers {
		if n == c.cfg.Node {
			continue
		}
		// A clock that jumped makes samples look old or from the future: both are dropped until the peer's next batch.
		if age := c.nowMS - s.at; age > clockPeerExpiryMS || age < 0 {
			delete(k.peers, n)
			continue
		}
		k.buf = append(k.buf, s.offset)
	}
	k.bad, k.offset = false, 0
	if len(k.buf) < minClockPeers {
		return
	}
	slices.Sort(k.buf)
	k.offset = median(k.buf)
	k.bad = k.offset > maxClockOffsetMS || k.offset < -maxClockOffsetMS
	if k.wait--; k.bad && k.wait <= 0 {
		k.wait = clockTransferTicks
		for _, r := range c.order {
			k.handOver(c, r)
		}
	}
}

// median of an even number of sorted offsets is the smaller one in magnitude: one odd peer of two proves nothing.
func median(s []int64) int64 {
	lo, hi := s[(len(s)-1)/2], s[len(s)/2]
	if abs(lo) < abs(hi) {
		return lo
	}
	return hi
}

func abs(v int64) int64 { return max(v, -v) }

func (k *clockRule) handOver(c *core, r *replica) {
	if !r.leader || r.stopped {
		return
	}
	c.event(EventClock, r, 0, fmt.Sprintf("clock is %d ms off the peers' median", -k.offset))
	var best, match uint64
	r.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr progress) {
		if id != r.id && typ == raft.ProgressTypePeer && pr.RecentActive && pr.Match >= match {
			best, match = id, pr.Match
		}
	})
	if best != 0 {
		c.guard(r, func() { r.rn.TransferLeader(best) })
	}
}
