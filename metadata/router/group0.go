package router

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata/host"
)

// applyPoll is how often a wait for the local replica of group 0 looks again by itself.
const applyPoll = 20 * time.Millisecond

// Group0 is a node's window on the configuration group: the newest view it has applied, and calls to the leader.
// It implements cluster.Source.
type Group0 struct {
	deps    Group0Deps
	view    atomic.Pointer[cluster.View]
	applied atomic.Uint64
	leader  atomic.Uint32
	mu      struct {
		sync.Mutex
		changed chan struct{} // closed and replaced when applied moves
	}
}

// Group0Deps are what Group0 stands on.
type Group0Deps struct {
	Self    ident.Node
	Replica func() host.API // this node's replica of group 0
	Caller  wire.Caller
}

// NewGroup0 returns a source that shows view until Publish is called.
func NewGroup0(deps Group0Deps, view *cluster.View) *Group0 {
	g := &Group0{deps: deps}
	g.view.Store(view)
	g.mu.changed = make(chan struct{})
	return g
}

// Publish shows a newer view. It is the state machine's OnView.
func (g *Group0) Publish(v *cluster.View) { g.view.Store(v) }

// Applied moves the applied index. It is the state machine's Applied hook and does not block.
func (g *Group0) Applied(index uint64) {
	g.applied.Store(index)
	g.mu.Lock()
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
	g.mu.Unlock()
}

// View implements cluster.Source.
func (g *Group0) View() *cluster.View { return g.view.Load() }

func (g *Group0) wait(ctx context.Context, index uint64) error {
	for {
		g.mu.Lock()
		changed := g.mu.changed
		g.mu.Unlock()
		if g.applied.Load() >= index {
			return nil
		}
		for _, s := range g.deps.Replica().Status() {
			if s.Group == 0 && s.Applied >= index {
				return nil
			}
		}
		timer := time.NewTimer(applyPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return oerr.E("cluster.sync", oerr.Unavailable, ctx.Err())
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Sync implements cluster.Source.
func (g *Group0) Sync(ctx context.Context) (*cluster.View, error) {
	ctx, cancel := context.WithTimeout(ctx, retryWindow)
	defer cancel()
	reply, _, err := g.call(ctx, wire.MethodClusterSync, nil)
	if err != nil {
		return nil, err
	}
	if len(reply) != 8 {
		return nil, oerr.Errorf("cluster.sync", oerr.Internal, "reply of %d bytes, expected 8", len(reply))
	}
	if err := g.wait(ctx, binary.LittleEndian.Uint64(reply)); err != nil {
		return nil, err
	}
	return g.View(), nil
}

// Exec implements cluster.Source. A refusal comes back as an error of its oerr.Kind.
func (g *Group0) Exec(ctx context.Context, cmd *cluster.Command) (cluster.CommandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, retryWindow)
	defer cancel()
	if cmd.RequestID.IsZero() {
		cmd.RequestID = ident.New()
	}
	req, err := json.Marshal(cmd)
	if err != nil {
		return cluster.CommandResult{}, oerr.E("cluster.exec", oerr.InvalidArgument, err)
	}
	reply, asked, err := g.call(ctx, wire.MethodClusterExec, req)
	if err != nil {
		if asked && retriable(err) {
			err = oerr.E("cluster.exec", oerr.OutcomeUnknown, err)
		}
		return cluster.CommandResult{}, err
	}
	if len(reply) < 8 {
		return cluster.CommandResult{}, oerr.Errorf("cluster.exec", oerr.Internal, "reply of %d bytes, expected at least 8", len(reply))
	}
	var res cluster.CommandResult
	if err := json.Unmarshal(reply[8:], &res); err != nil {
		return cluster.CommandResult{}, oerr.E("cluster.exec", oerr.Internal, err)
	}
	res.Index = binary.LittleEndian.Uint64(reply)
	if err := g.wait(ctx, res.Index); err != nil {
		return cluster.CommandResult{}, oerr.E("cluster.exec", oerr.OutcomeUnknown, err)
	}
	if res.Code != 0 {
		return res, oerr.E("cluster.exec", oerr.Kind(res.Code-1), errors.New(res.Detail))
	}
	return res, nil
}

// call tries the leader of group 0, then everybody, until ctx ends. The same request goes to each.
func (g *Group0) call(ctx context.Context, m wire.Method, req []byte) (reply []byte, asked bool, err error) {
	backoff := backoffMin
	last := error(oerr.Errorf("cluster.call", oerr.Unavailable, "no leader of group 0 was found"))
	for {
		nodes := g.candidates()
		for i := 0; i < len(nodes) && i < 64; i++ {
			actx, cancel := context.WithTimeout(ctx, attemptTimeout)
			status, rest, leader, err := g.try(actx, nodes[i], m, req)
			cancel()
			switch {
			case err != nil && !retriable(err):
				return nil, true, err
			case err != nil:
				asked = asked || !oerr.Is(err, oerr.NotLeader)
				last = err
			case status == statusDone:
				g.leader.Store(uint32(nodes[i]))
				return rest, true, nil
			case leader != 0 && leader != nodes[i]:
				g.leader.Store(uint32(leader))
				if j := slices.Index(nodes[i+1:], leader); j > 0 { // ask it next
					nodes[i+1], nodes[i+1+j] = nodes[i+1+j], nodes[i+1]
				}
			}
			if ctx.Err() != nil {
				break
			}
		}
		timer := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, asked, oerr.E("cluster.call", oerr.Unavailable, last)
		case <-timer.C:
		}
		backoff = min(2*backoff, backoffMax)
	}
}

// candidates lists the nodes to try: the hinted leader, this node, the others in order.
func (g *Group0) candidates() []ident.Node {
	hint := ident.Node(g.leader.Load())
	if l := g.deps.Replica().Leader(0); l != 0 {
		hint = l
	}
	var out []ident.Node
	for id, n := range g.View().Nodes {
		if !n.Removed && id != hint && id != g.deps.Self {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	if hint != g.deps.Self {
		out = append([]ident.Node{g.deps.Self}, out...)
	}
	if hint != 0 {
		out = append([]ident.Node{hint}, out...)
	}
	return out
}

func (g *Group0) try(ctx context.Context, node ident.Node, m wire.Method, req []byte) (byte, []byte, ident.Node, error) {
	var raw []byte
	var err error
	switch {
	case node != g.deps.Self:
		raw, err = g.deps.Caller.Call(ctx, node, m, req)
	case m == wire.MethodClusterExec:
		raw, err = g.handleExec(ctx, wire.Peer{Node: node, Role: wire.RoleNode}, req)
	default:
		raw, err = g.handleSync(ctx, wire.Peer{Node: node, Role: wire.RoleNode}, req)
	}
	if err != nil {
		return 0, nil, 0, err
	}
	return parseStatus(raw)
}

// Serve registers the calls that other nodes make.
func (g *Group0) Serve(handle func(wire.Method, wire.Role, wire.Handler)) {
	handle(wire.MethodClusterExec, wire.RoleNode, g.handleExec)
	handle(wire.MethodClusterSync, wire.RoleNode, g.handleSync)
}

func (g *Group0) handleExec(ctx context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	replica := []host.API{g.deps.Replica()}
	a, err := propose(ctx, replica, 0, append([]byte(nil), req...))
	if oerr.Is(err, oerr.NotLeader) {
		return notLeaderReply(replica, 0), nil
	}
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint64([]byte{statusDone}, a.Index), a.Data...), nil
}

func (g *Group0) handleSync(ctx context.Context, _ wire.Peer, _ []byte) ([]byte, error) {
	replica := []host.API{g.deps.Replica()}
	index, err := replica[0].ReadIndex(ctx, 0)
	if oerr.Is(err, oerr.NotLeader) {
		return notLeaderReply(replica, 0), nil
	}
	if err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint64([]byte{statusDone}, index), nil
}
