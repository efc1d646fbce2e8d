package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/host"
)

// world is group 0 and the spans of all metadata groups, shared by actors (gateways and a controller) whose calls are
// interleaved by seed: every call waits until the scheduler picks it, and may then fail before its effect, fail after
// it, or fail now and take effect later.
type world struct {
	r       *rand.Rand
	s       *State
	view    *View
	spans   map[ident.ID]*fakeSpan
	calls   chan call
	late    []func() // effects that come after their caller was told of an error
	faults  bool
	clock   time.Time
	badness error
}

type fakeSpan struct {
	group   ident.Group
	sealed  bool
	objects int
	parts   int // entries that sealing takes
}

type call struct {
	effect func() error
	late   func() bool // whether this effect may come later
	done   chan error
}

// do runs effect when the scheduler says so.
func (w *world) do(ctx context.Context, mayBeLate bool, effect func() error) error {
	c := call{effect: effect, late: func() bool { return mayBeLate }, done: make(chan error, 1)}
	w.calls <- c
	return <-c.done
}

// run lets the actors run to their ends.
func (w *world) run(actors []func()) {
	ended := make(chan struct{}, len(actors))
	for _, a := range actors {
		go func() { a(); ended <- struct{}{} }()
	}
	alive := len(actors)
	var waiting []call
	for alive > 0 {
		for len(waiting) < alive {
			select {
			case c := <-w.calls:
				waiting = append(waiting, c)
			case <-ended:
				alive--
			}
		}
		if alive == 0 {
			break
		}
		if len(w.late) > 0 && w.r.IntN(6) == 0 {
			w.applyLate()
		}
		i := w.r.IntN(len(waiting))
		c := waiting[i]
		waiting = append(waiting[:i], waiting[i+1:]...)
		w.answer(c)
	}
}

func (w *world) applyLate() {
	i := w.r.IntN(len(w.late))
	w.late[i]()
	w.late = append(w.late[:i], w.late[i+1:]...)
}

func (w *world) answer(c call) {
	fault := 9
	if w.faults {
		fault = w.r.IntN(14)
	}
	switch fault {
	case 0:
		c.done <- oerr.Errorf("fake", oerr.Unavailable, "lost before it had an effect")
	case 1:
		_ = c.effect()
		c.done <- oerr.Errorf("fake", oerr.OutcomeUnknown, "lost after its effect")
	case 2:
		if c.late() {
			w.late = append(w.late, func() { _ = c.effect() })
			c.done <- oerr.Errorf("fake", oerr.OutcomeUnknown, "lost, and its effect comes later")
			return
		}
		c.done <- c.effect()
	default:
		c.done <- c.effect()
	}
}

// gateway is one node's Source and SpanCommander: its view lags until it syncs or proposes.
type gateway struct {
	w    *world
	view *View
}

func (g *gateway) View() *View { return g.view }

func (g *gateway) Sync(ctx context.Context) (*View, error) {
	err := g.w.do(ctx, false, func() error { g.view = g.w.view; return nil })
	return g.view, err
}

func (g *gateway) Exec(ctx context.Context, cmd *Command) (res CommandResult, err error) {
	err = g.w.do(ctx, false, func() error {
		cmd.Now = 1
		res = g.w.s.Apply(cmd)
		g.w.view = g.w.s.View()
		g.view = g.w.view
		return nil
	})
	return res, err
}

func (g *gateway) SpanCommand(ctx context.Context, id ident.Group, cmd *metadata.Command) (res metadata.Result, err error) {
	err = g.w.do(ctx, true, func() error {
		res = g.w.applySpan(id, cmd)
		return nil
	})
	return res, err
}

func (g *gateway) Spans(ctx context.Context, id ident.Group) (out []metadata.Span, err error) {
	err = g.w.do(ctx, false, func() error {
		for b, sp := range g.w.spans {
			if sp.group == id {
				out = append(out, metadata.Span{Bucket: b, Generation: 1, Sealed: sp.sealed})
			}
		}
		return nil
	})
	return out, err
}

// applySpan is what a metadata group's apply does with these commands.
func (w *world) applySpan(g ident.Group, cmd *metadata.Command) metadata.Result {
	refused := func(k oerr.Kind) metadata.Result { return metadata.Result{Code: 1 + uint8(k)} }
	sp := w.spans[cmd.Bucket]
	if cmd.Op == metadata.OpCreateSpan {
		if sp != nil && sp.sealed {
			return refused(oerr.NoSuchBucket)
		}
		if sp != nil {
			return metadata.Result{}
		}
		w.spans[cmd.Bucket] = &fakeSpan{group: g}
		return metadata.Result{}
	}
	if sp == nil {
		if cmd.Op == metadata.OpDropSpan {
			return metadata.Result{}
		}
		return refused(oerr.NoSuchBucket)
	}
	switch cmd.Op {
	case metadata.OpSealSpan:
		if sp.objects > 0 {
			return refused(oerr.BucketNotEmpty)
		}
		sp.sealed = true
		if sp.parts--; sp.parts > 0 {
			return refused(oerr.Busy)
		}
	case metadata.OpDropSpan:
		if !sp.sealed { // a creation that came late made it anew
			return refused(oerr.InvalidArgument)
		}
		if sp.objects > 0 || w.view.ByID[cmd.Bucket] != nil {
			w.badness = fmt.Errorf("dropped a span with %d objects, sealed %t, of bucket %+v", sp.objects, sp.sealed, w.view.ByID[cmd.Bucket])
		}
		delete(w.spans, cmd.Bucket)
	}
	return metadata.Result{}
}

// client creates, fills, empties and deletes buckets.
func (w *world) client(seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 7))
	g := &gateway{w: w, view: w.view}
	deps := BucketDeps{Source: g, Spans: g}
	for range steps {
		name := bucketName(r.IntN(3))
		ctx := context.Background()
		switch r.IntN(5) {
		case 0, 1:
			_, _ = CreateBucket(ctx, deps, name, "root")
		case 2, 3:
			_ = DeleteBucket(ctx, deps, name)
		default:
			by := r.IntN(2)
			_ = w.do(ctx, false, func() error {
				b := w.view.Buckets[name]
				if b == nil || b.State == BucketCreating {
					return errors.New("no such bucket")
				}
				if sp := w.spans[b.ID]; sp != nil && !sp.sealed {
					sp.objects = by
				}
				return nil
			})
		}
	}
}

// TestBucketsSurviveFaultsAndRaces: whatever clients and controllers do to each other, once the faults end every bucket
// is active over an open span, every span has a bucket, and nothing that held objects was dropped.
func TestBucketsSurviveFaultsAndRaces(t *testing.T) {
	base := seedOf(t)
	for i := range uint64(400) {
		if err := bucketSchedule(t, base+i); err != nil {
			t.Fatalf("OBJ_TEST_SEED=%d: %v", base+i, err)
		}
	}
}

func bucketSchedule(t *testing.T, seed uint64) error {
	d := formed(t, 1, 1)
	w := &world{r: rand.New(rand.NewPCG(seed, 1)), s: d.s, view: d.s.View(), spans: map[ident.ID]*fakeSpan{}, calls: make(chan call), faults: true, clock: time.Unix(0, 0)}
	controller := func() *Controller {
		g := &gateway{w: w, view: w.view}
		c, err := NewController(ControllerConfig{
			BucketDeps: BucketDeps{Source: g, Spans: g}, Lister: g, Replicas: noChanges{}, Leading: func() bool { return true }, Now: func() time.Time { return w.clock },
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := controller()
	actors := []func(){func() {
		for range 6 {
			c.Pass(t.Context())
			w.clock = w.clock.Add(halfDoneGrace)
		}
	}}
	for n := range uint64(3) {
		actors = append(actors, func() { w.client(seed+n, 6) })
	}
	w.run(actors)
	for len(w.late) > 0 {
		w.applyLate()
	}
	w.faults = false
	c = controller()
	for range 3 * DefaultGroupCount {
		w.run([]func(){func() { c.Pass(t.Context()) }})
		w.clock = w.clock.Add(spanCheckInterval)
	}
	if w.badness != nil {
		return w.badness
	}
	for name, b := range w.view.Buckets {
		if sp := w.spans[b.ID]; b.State != BucketActive || sp == nil || sp.sealed || sp.group != b.Spans[0].Group {
			return fmt.Errorf("bucket %s is %s over span %+v", name, b.State, sp)
		}
	}
	if len(w.spans) != len(w.view.Buckets) {
		return fmt.Errorf("%d spans for %d buckets", len(w.spans), len(w.view.Buckets))
	}
	return nil
}

// noChanges is a group whose membership nobody changes.
type noChanges struct{}

func (noChanges) Status(context.Context, ident.Group) (host.GroupStatus, error) {
	return host.GroupStatus{}, oerr.Errorf("fake", oerr.Unavailable, "not asked for here")
}
func (noChanges) AddLearner(context.Context, ident.Group, host.Member) error { return nil }
func (noChanges) Promote(context.Context, ident.Group, uint64) error         { return nil }
func (noChanges) Remove(context.Context, ident.Group, uint64) error          { return nil }

// quiet is a world without faults for one caller at a time.
func quiet(t *testing.T) (*world, *gateway) {
	t.Helper()
	d := formed(t, 4, 1)
	w := &world{r: rand.New(rand.NewPCG(1, 1)), s: d.s, view: d.s.View(), spans: map[ident.ID]*fakeSpan{}, calls: make(chan call)}
	return w, &gateway{w: w, view: w.view}
}

func TestCreateAndDeleteBucketAnswerWhatHolds(t *testing.T) {
	w, g := quiet(t)
	deps, ctx := BucketDeps{Source: g, Spans: g}, t.Context()
	in := func(f func() error) (err error) { w.run([]func(){func() { err = f() }}); return err }
	create := func(name, owner string) error {
		return in(func() error { _, err := CreateBucket(ctx, deps, name, owner); return err })
	}
	remove := func(name string) error { return in(func() error { return DeleteBucket(ctx, deps, name) }) }
	want := func(what string, err error, kind oerr.Kind) {
		t.Helper()
		if !oerr.Is(err, kind) {
			t.Errorf("%s was answered %v, expected %s", what, err, kind)
		}
	}
	want("a bad name", create("No", "root"), oerr.InvalidArgument)
	if err := create("abc", "root"); err != nil {
		t.Fatal(err)
	}
	b := w.view.Buckets["abc"]
	if b.State != BucketActive || w.spans[b.ID] == nil {
		t.Fatalf("bucket %+v over span %+v", b, w.spans[b.ID])
	}
	want("a taken name", create("abc", "other"), oerr.BucketExists)
	want("one's own name again", create("abc", "root"), oerr.BucketExists)
	want("deleting what is not there", remove("xyz"), oerr.NoSuchBucket)
	w.spans[b.ID].objects = 1
	want("deleting what holds an object", remove("abc"), oerr.BucketNotEmpty)
	if s := w.view.Buckets["abc"].State; s != BucketActive {
		t.Fatalf("a bucket that holds an object is %s after a refused deletion", s)
	}
	w.spans[b.ID].objects, w.spans[b.ID].parts = 0, 5
	if err := remove("abc"); err != nil {
		t.Fatal(err)
	}
	if len(w.spans) != 0 || w.view.Buckets["abc"] != nil {
		t.Fatalf("left: %v, %+v", w.spans, w.view.Buckets["abc"])
	}
	stale := g.view
	if err := create("abc", "root"); err != nil {
		t.Fatal(err)
	}
	if w.view.Buckets["abc"].ID == b.ID {
		t.Fatal("the new bucket has the old one's id")
	}
	g.view = stale // a gateway that has not seen the new bucket must ask before it says so
	if err := remove("abc"); err != nil {
		t.Fatalf("deleting by a gateway with an old view: %v", err)
	}
}

func TestDeleteBucketSaysUnavailableWhenGroupZeroCannotBeAsked(t *testing.T) {
	w, g := quiet(t)
	var err error
	dead := &deadSource{g}
	w.run([]func(){func() { err = DeleteBucket(t.Context(), BucketDeps{Source: dead, Spans: g}, "abc") }})
	if !oerr.Is(err, oerr.Unavailable) {
		t.Fatalf("answered %v: unknown is never absent", err)
	}
}

type deadSource struct{ *gateway }

func (deadSource) Sync(context.Context) (*View, error) {
	return nil, oerr.Errorf("fake", oerr.Unavailable, "no quorum")
}
