package router

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

// source shows a fixed view and counts how often it was asked to be sure.
type source struct {
	view  *cluster.View
	next  *cluster.View // becomes the view at the next Sync
	err   error
	syncs int
}

func (s *source) View() *cluster.View { return s.view }
func (s *source) Sync(context.Context) (*cluster.View, error) {
	s.syncs++
	if s.err != nil {
		return nil, s.err
	}
	if s.next != nil {
		s.view = s.next
	}
	return s.view, nil
}
func (s *source) Exec(context.Context, *cluster.Command) (cluster.CommandResult, error) {
	return cluster.CommandResult{}, errors.New("not asked for here")
}

// caller answers calls by node.
type caller struct {
	mu    sync.Mutex
	calls []ident.Node
	cmds  []*metadata.Command
	f     func(ctx context.Context, node ident.Node, m wire.Method, try int) ([]byte, error)
}

func (c *caller) Call(ctx context.Context, node ident.Node, m wire.Method, req []byte) ([]byte, error) {
	c.mu.Lock()
	c.calls = append(c.calls, node)
	if m == wire.MethodPropose {
		cmd, err := metadata.DecodeCommand(append([]byte(nil), req[4:]...))
		if err != nil {
			panic(err)
		}
		c.cmds = append(c.cmds, cmd)
	}
	try := len(c.calls)
	c.mu.Unlock()
	return c.f(ctx, node, m, try)
}
func (c *caller) Send(ident.Node, wire.Method, []byte) bool { return true }

func viewWith(bucket ident.ID, generation uint64) *cluster.View {
	b := &cluster.Bucket{ID: bucket, Name: "b", State: cluster.BucketActive,
		Spans: []cluster.SpanRef{{Generation: generation, Group: 7}}}
	return &cluster.View{
		Buckets: map[string]*cluster.Bucket{"b": b}, ByID: map[ident.ID]*cluster.Bucket{bucket: b},
		Groups: map[ident.Group]*cluster.Group{7: {ID: 7, Replicas: []cluster.Replica{{ID: 1, Node: 2}, {ID: 2, Node: 3}, {ID: 3, Node: 4}}}},
	}
}

func done(index uint64, r metadata.Result) []byte {
	return r.Append(binary.LittleEndian.AppendUint64([]byte{statusDone}, index))
}

func notLeader(node ident.Node) []byte {
	return binary.LittleEndian.AppendUint32([]byte{statusNotLeader}, uint32(node))
}

func newRouter(s cluster.Source, c wire.Caller) *Router {
	return New(Deps{Self: 1, Source: s, Caller: c, Replicas: func(ident.Group) []host.API { return nil }})
}

func deleteCmd() *metadata.Command { return &metadata.Command{Op: metadata.OpDelete, Key: "k"} }

func TestACommandFollowsTheLeaderHint(t *testing.T) {
	c := &caller{f: func(_ context.Context, node ident.Node, _ wire.Method, _ int) ([]byte, error) {
		if node == 4 {
			return done(9, metadata.Result{Seq: 5}), nil
		}
		return notLeader(4), nil
	}}
	r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
	res, err := r.Command(t.Context(), "b", deleteCmd())
	if err != nil || res.Seq != 5 || res.Index != 9 {
		t.Fatalf("got %+v, %v", res, err)
	}
	if _, err := r.Command(t.Context(), "b", deleteCmd()); err != nil {
		t.Fatal(err)
	}
	if got := c.calls; len(got) != 3 || got[2] != 4 {
		t.Fatalf("nodes asked: %v, expected the second command to go straight to 4", got)
	}
}

func TestARetryAfterALostReplyKeepsItsRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{f: func(_ context.Context, _ ident.Node, _ wire.Method, try int) ([]byte, error) {
			if try < 5 {
				return nil, oerr.Errorf("test", oerr.Unavailable, "the connection broke")
			}
			return done(3, metadata.Result{}), nil
		}}
		r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
		if _, err := r.Command(t.Context(), "b", deleteCmd()); err != nil {
			t.Fatal(err)
		}
		for i, cmd := range c.cmds {
			if cmd.RequestID != c.cmds[0].RequestID {
				t.Errorf("try %d has another request id", i)
			}
			if (cmd.FirstIndex != 0) != (i > 0) {
				t.Errorf("try %d has first index %d", i, cmd.FirstIndex)
			}
		}
	})
}

func TestACommandThatMayHaveHappenedIsUnknownNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{f: func(context.Context, ident.Node, wire.Method, int) ([]byte, error) {
			return nil, oerr.Errorf("test", oerr.Unavailable, "the connection broke")
		}}
		r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
		start := time.Now()
		_, err := r.Command(t.Context(), "b", deleteCmd())
		if !oerr.Is(err, oerr.OutcomeUnknown) {
			t.Fatalf("got %v, expected outcome unknown", err)
		}
		if d := time.Since(start); d > retryWindow+attemptTimeout {
			t.Fatalf("took %s, expected at most %s", d, retryWindow)
		}
	})
}

func TestACommandNobodyTookIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{f: func(context.Context, ident.Node, wire.Method, int) ([]byte, error) { return notLeader(0), nil }}
		r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
		if _, err := r.Command(t.Context(), "b", deleteCmd()); !oerr.Is(err, oerr.Unavailable) {
			t.Fatalf("got %v, expected unavailable", err)
		}
	})
}

func TestTwoReplicasThatNameEachOtherAreNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{f: func(_ context.Context, node ident.Node, _ wire.Method, _ int) ([]byte, error) {
			return notLeader(map[ident.Node]ident.Node{2: 3, 3: 2, 4: 2}[node]), nil
		}}
		r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
		if _, err := r.Command(t.Context(), "b", deleteCmd()); !oerr.Is(err, oerr.Unavailable) {
			t.Fatalf("got %v, expected unavailable", err)
		}
		if n := len(c.calls); n > 1000 {
			t.Fatalf("%d calls in %s", n, retryWindow)
		}
	})
}

func TestAMissIsNotAbsentWithoutQuorum(t *testing.T) {
	s := &source{view: &cluster.View{}, err: oerr.Errorf("test", oerr.Unavailable, "no quorum")}
	r := newRouter(s, &caller{})
	if _, err := r.Command(t.Context(), "b", deleteCmd()); !oerr.Is(err, oerr.Unavailable) {
		t.Fatalf("got %v, expected unavailable", err)
	}
	s.err = nil
	if _, err := r.Command(t.Context(), "b", deleteCmd()); !oerr.Is(err, oerr.NoSuchBucket) {
		t.Fatalf("got %v, expected no such bucket", err)
	}
}

func TestAStaleSpanIsRefreshedAndTriedAsAnotherRequest(t *testing.T) {
	id := ident.New()
	s := &source{view: viewWith(id, 1), next: viewWith(id, 2)}
	c := &caller{}
	c.f = func(context.Context, ident.Node, wire.Method, int) ([]byte, error) {
		if c.cmds[len(c.cmds)-1].Generation == 1 {
			return done(1, metadata.Result{Code: 1 + uint8(oerr.StaleEpoch), Detail: "span generation"}), nil
		}
		return done(2, metadata.Result{}), nil
	}
	r := newRouter(s, c)
	if _, err := r.Command(t.Context(), "b", deleteCmd()); err != nil {
		t.Fatal(err)
	}
	if len(c.cmds) != 2 || c.cmds[0].RequestID == c.cmds[1].RequestID || s.syncs != 1 {
		t.Fatalf("%d commands, %d syncs; the second must be a new request after one refresh", len(c.cmds), s.syncs)
	}
}

func TestARefusedQueryIsAnAnswer(t *testing.T) {
	id := ident.New()
	s := &source{view: viewWith(id, 1)}
	c := &caller{f: func(context.Context, ident.Node, wire.Method, int) ([]byte, error) {
		return append([]byte{statusRefused, byte(oerr.NoSuchUpload)}, "no such upload"...), nil
	}}
	r := newRouter(s, c)
	_, err := r.Query(t.Context(), "b", &metadata.Query{Op: metadata.QueryUpload, Key: "k", UploadID: ident.New()})
	if !oerr.Is(err, oerr.NoSuchUpload) || len(c.calls) != 1 {
		t.Fatalf("got %v after %d calls", err, len(c.calls))
	}
}

func TestAMalformedReplyIsAnErrorNotAPanic(t *testing.T) {
	for _, reply := range [][]byte{nil, {statusDone}, {statusDone, 1, 2}, {statusNotLeader, 1}, {statusRefused}, {99, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		c := &caller{f: func(context.Context, ident.Node, wire.Method, int) ([]byte, error) { return reply, nil }}
		r := newRouter(&source{view: viewWith(ident.New(), 1)}, c)
		if _, err := r.Command(t.Context(), "b", deleteCmd()); err == nil {
			t.Errorf("reply % x was taken as a success", reply)
		}
		if _, err := r.Query(t.Context(), "b", &metadata.Query{Op: metadata.QueryGet, Key: "k"}); err == nil {
			t.Errorf("reply % x was taken as an answer", reply)
		}
	}
}
