package router

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

const (
	// retryWindow is how long a call is retried across an election before it becomes Unavailable (PROTOCOLS G).
	retryWindow = 10 * time.Second
	// attemptTimeout bounds one try at one node: an unresponsive leader is given up for its successor.
	attemptTimeout = 3 * time.Second
	// backoff between two rounds over a group's replicas, doubled up to backoffMax.
	backoffMin = 20 * time.Millisecond
	backoffMax = 500 * time.Millisecond
	// staleRetries is how often a refusal for a stale span generation is followed by a refresh and another try.
	staleRetries = 3
)

// Deps are what a router stands on.
type Deps struct {
	Self     ident.Node
	Source   cluster.Source
	Replicas Replicas
	Caller   wire.Caller
	Window   time.Duration // how long a call is retried across an election; 0 is retryWindow
}

// Router implements API. It is safe for concurrent use and has no goroutines.
type Router struct {
	deps Deps
	mu   struct {
		sync.RWMutex
		groups map[ident.Group]hint
	}
}

type hint struct {
	leader ident.Node
	index  uint64 // highest applied index seen in a reply
}

// New returns a router.
func New(deps Deps) *Router {
	if deps.Window == 0 {
		deps.Window = retryWindow
	}
	r := &Router{deps: deps}
	r.mu.groups = map[ident.Group]hint{}
	return r
}

func (r *Router) hint(g ident.Group) hint {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mu.groups[g]
}

func (r *Router) learn(g ident.Group, leader ident.Node, index uint64) {
	if h := r.hint(g); h.leader == leader && h.index >= index {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mu.groups[g]
	h.leader, h.index = leader, max(h.index, index)
	r.mu.groups[g] = h
}

// attempt is one try of one call at one node. asked says whether it may have been executed.
type attempt func(ctx context.Context, node ident.Node) (done bool, leader ident.Node, asked bool, err error)

// route tries f at the leader of g until it is done, the context ends or the retry window has passed. asked tells
// whether any try may have been executed.
func (r *Router) route(ctx context.Context, g ident.Group, f attempt) (asked bool, err error) {
	began := time.Now()
	// The common case first: the leader is known, and there.
	next := r.hint(g).leader
	if next == 0 {
		next = leaderAmong(r.deps.Replicas(g), g)
	}
	var last error
	if next != 0 {
		actx, acancel := context.WithTimeout(ctx, attemptTimeout)
		done, leader, a, err := f(actx, next)
		acancel()
		if done {
			r.learn(g, next, 0)
			return a, err
		}
		asked, last = a, err
		if leader != 0 {
			r.learn(g, leader, 0)
		}
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(r.deps.Window))
	defer cancel()
	a, err := r.search(ctx, g, last, f)
	return asked || a, err
}

// search goes over the replicas of g, again and again, until one is found that leads.
func (r *Router) search(ctx context.Context, g ident.Group, last error, f attempt) (asked bool, err error) {
	backoff := backoffMin
	for {
		members := r.members(g)
		if len(members) == 0 {
			last = oerr.Errorf("router.route", oerr.Unavailable, "metadata group %d has no replicas: the cluster is not formed yet", g)
		}
		tried := map[ident.Node]bool{}
		next := r.hint(g).leader
		for range 2 * (len(members) + 1) {
			if next == 0 || tried[next] {
				if next = firstUntried(members, tried); next == 0 {
					break
				}
			}
			node := next
			tried[node], next = true, 0
			actx, acancel := context.WithTimeout(ctx, attemptTimeout)
			done, leader, a, err := f(actx, node)
			acancel()
			asked = asked || a
			if done {
				r.learn(g, node, 0)
				return asked, err
			}
			if err != nil {
				last = err
			}
			if leader != 0 && leader != node {
				if delete(tried, leader); leader != r.hint(g).leader {
					r.learn(g, leader, 0)
				}
				next = leader
			}
			if ctx.Err() != nil {
				break
			}
		}
		timer := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			timer.Stop()
			if last == nil {
				last = errors.New("no leader was found")
			}
			return asked, oerr.E("router.route", oerr.Unavailable, fmt.Errorf("metadata group %d: %w", g, last))
		case <-timer.C:
		}
		backoff = min(2*backoff, backoffMax)
	}
}

func firstUntried(members []ident.Node, tried map[ident.Node]bool) ident.Node {
	for _, m := range members {
		if !tried[m] {
			return m
		}
	}
	return 0
}

// members lists the nodes with a replica of g, this node first.
func (r *Router) members(g ident.Group) []ident.Node {
	v := r.deps.Source.View()
	grp := v.Groups[g]
	if grp == nil {
		return nil
	}
	out := make([]ident.Node, 0, len(grp.Replicas))
	for _, rep := range grp.Replicas {
		if rep.Node == r.deps.Self {
			out = append([]ident.Node{rep.Node}, out...)
		} else {
			out = append(out, rep.Node)
		}
	}
	return out
}

// parseStatus splits a reply and handles "not the leader".
func parseStatus(reply []byte) (status byte, rest []byte, leader ident.Node, err error) {
	if len(reply) == 0 {
		return 0, nil, 0, oerr.Errorf("router.call", oerr.Internal, "empty reply, expected a status byte")
	}
	status, rest = reply[0], reply[1:]
	if status == statusNotLeader {
		if len(rest) != 4 {
			return 0, nil, 0, oerr.Errorf("router.call", oerr.Internal, "not-leader reply of %d bytes, expected 4", len(rest))
		}
		leader = ident.Node(binary.LittleEndian.Uint32(rest))
	}
	return status, rest, leader, nil
}

// retriable says whether an error means "this replica could not, another may".
func retriable(err error) bool {
	switch oerr.KindOf(err) {
	case oerr.Unavailable, oerr.NotLeader, oerr.OutcomeUnknown, oerr.DeadlineExceeded, oerr.Busy, oerr.Closed:
		return true
	}
	return false
}

// command proposes an encoded command, at most once in effect: every try has the same request id.
func (r *Router) command(ctx context.Context, g ident.Group, cmd *metadata.Command) (metadata.Result, error) {
	if err := cmd.Validate(); err != nil {
		return metadata.Result{}, oerr.Wrap("router.command", err)
	}
	first := max(r.hint(g).index, 1)
	cmd.FirstIndex = 0
	data := cmd.Append(nil)
	var reply []byte
	var index uint64
	tries := 0
	asked, err := r.route(ctx, g, func(ctx context.Context, node ident.Node) (bool, ident.Node, bool, error) {
		if tries++; tries == 2 { // from now on the dedup window has to cover the first try
			cmd.FirstIndex = first
			data = cmd.Append(nil)
		}
		if node == r.deps.Self {
			replicas := r.deps.Replicas(g)
			a, err := propose(ctx, replicas, g, append([]byte(nil), data...))
			switch {
			case err == nil:
				reply, index = a.Data, a.Index
				return true, 0, true, nil
			case oerr.Is(err, oerr.NotLeader):
				return false, leaderAmong(replicas, g), false, err
			}
			return !retriable(err), 0, true, err
		}
		raw, err := r.deps.Caller.Call(ctx, node, wire.MethodPropose,
			append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(g)), data...))
		if err != nil {
			return !retriable(err), 0, true, err
		}
		status, rest, leader, err := parseStatus(raw)
		switch {
		case err != nil:
			return true, 0, true, err
		case status == statusNotLeader:
			return false, leader, false, nil
		case len(rest) < 8:
			return true, 0, true, oerr.Errorf("router.command", oerr.Internal, "reply of %d bytes, expected at least 8", len(rest))
		}
		index, reply = binary.LittleEndian.Uint64(rest), rest[8:]
		return true, 0, true, nil
	})
	if err != nil {
		if asked && retriable(err) {
			return metadata.Result{}, oerr.E("router.command", oerr.OutcomeUnknown, err)
		}
		return metadata.Result{}, err
	}
	res, err := metadata.DecodeResult(reply)
	if err != nil {
		return metadata.Result{}, oerr.Wrap("router.command", err)
	}
	res.Index = index
	r.mu.Lock()
	h := r.mu.groups[g]
	h.index = max(h.index, index)
	r.mu.groups[g] = h
	r.mu.Unlock()
	if res.Code != 0 {
		return *res, oerr.E("router.command", oerr.Kind(res.Code-1), errors.New(res.Detail))
	}
	return *res, nil
}

// query asks g's leader.
func (r *Router) query(ctx context.Context, g ident.Group, q *metadata.Query) (*metadata.Answer, error) {
	if err := q.Validate(); err != nil {
		return nil, oerr.Wrap("router.query", err)
	}
	var answer *metadata.Answer
	var data []byte
	_, err := r.route(ctx, g, func(ctx context.Context, node ident.Node) (bool, ident.Node, bool, error) {
		if node == r.deps.Self {
			replicas := r.deps.Replicas(g)
			var refused error
			err := ask(ctx, replicas, g, func(rd host.Reader) error {
				answer, refused = metadata.Ask(rd, q)
				return nil
			})
			switch {
			case err == nil:
				return true, 0, false, refused
			case oerr.Is(err, oerr.NotLeader):
				return false, leaderAmong(replicas, g), false, err
			}
			return !retriable(err), 0, false, err
		}
		if data == nil {
			data = q.Append(binary.LittleEndian.AppendUint32(nil, uint32(g)))
		}
		raw, err := r.deps.Caller.Call(ctx, node, wire.MethodQuery, data)
		if err != nil {
			return !retriable(err), 0, false, err
		}
		status, rest, leader, err := parseStatus(raw)
		switch {
		case err != nil:
			return true, 0, false, err
		case status == statusNotLeader:
			return false, leader, false, nil
		case status == statusRefused && len(rest) > 0:
			return true, 0, false, oerr.E("router.query", oerr.Kind(rest[0]), errors.New(string(rest[1:])))
		}
		answer, err = metadata.DecodeAnswer(rest)
		return true, 0, false, err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}
