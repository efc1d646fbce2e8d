package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRaft is the membership of all groups as Raft has it. Learners catch up by and by; calls fail by seed, before or
// after their effect.
type fakeRaft struct {
	r       *rand.Rand
	groups  map[ident.Group][]host.Member
	match   map[ident.Group]map[uint64]uint64
	leader  map[ident.Group]uint64
	faults  bool
	changed map[ident.Group]int // changes since the last check
	s       *State
	gone    map[ident.Group]map[uint64]bool
	bad     error
}

const fakeCommit = 1000

func newFakeRaft(seed uint64, s *State) *fakeRaft {
	f := &fakeRaft{r: rand.New(rand.NewPCG(seed, 3)), groups: map[ident.Group][]host.Member{}, match: map[ident.Group]map[uint64]uint64{},
		leader: map[ident.Group]uint64{}, changed: map[ident.Group]int{}, gone: map[ident.Group]map[uint64]bool{}, s: s}
	f.adopt()
	return f
}

// adopt makes groups that the view has and Raft has not.
func (f *fakeRaft) adopt() {
	v := f.s.View()
	for _, id := range sortedKeys(v.Groups) {
		if f.groups[id] != nil {
			continue
		}
		f.match[id], f.gone[id] = map[uint64]uint64{}, map[uint64]bool{}
		for _, r := range v.Groups[id].Founders {
			f.groups[id] = append(f.groups[id], host.Member{Replica: r.ID, Node: r.Node})
			f.match[id][r.ID] = fakeCommit
			f.leader[id] = r.ID
		}
	}
}

func (f *fakeRaft) Status(_ context.Context, g ident.Group) (host.GroupStatus, error) {
	if f.faults && f.r.IntN(8) == 0 {
		return host.GroupStatus{}, oerr.Errorf("fake", oerr.Unavailable, "no leader now")
	}
	progress := map[uint64]uint64{}
	for _, m := range f.groups[g] {
		if have := f.match[g][m.Replica]; have < fakeCommit && f.r.IntN(2) == 0 {
			f.match[g][m.Replica] = fakeCommit
		}
		progress[m.Replica] = f.match[g][m.Replica]
	}
	return host.GroupStatus{Group: g, Leader: f.leader[g], Commit: fakeCommit, Members: append([]host.Member(nil), f.groups[g]...), Progress: progress}, nil
}

// change runs one membership change, with faults around it, and checks what must hold after it.
func (f *fakeRaft) change(g ident.Group, do func() error) error {
	fault := 9
	if f.faults {
		fault = f.r.IntN(10)
	}
	if fault == 0 {
		return oerr.Errorf("fake", oerr.Unavailable, "no leader now")
	}
	f.changed[g]++
	if err := do(); err != nil {
		f.bad = errors.Join(f.bad, err)
		return err
	}
	fit, voters := 0, 0
	v := f.s.View()
	for _, m := range f.groups[g] {
		if !m.Learner {
			voters++
			if d := v.Drives[ident.Drive(m.Replica>>32)]; d.State == DriveActive && host.ReplicaID(d.ID, d.Incarnation) == m.Replica {
				fit++
			}
		}
	}
	if fit*2 <= voters && g != 0 {
		f.bad = errors.Join(f.bad, fmt.Errorf("group %d has %d fit voters of %d: no majority", g, fit, voters))
	}
	if fault == 1 {
		return oerr.Errorf("fake", oerr.OutcomeUnknown, "lost after its effect")
	}
	return nil
}

func (f *fakeRaft) AddLearner(_ context.Context, g ident.Group, m host.Member) error {
	return f.change(g, func() error {
		if f.gone[g][m.Replica] {
			return fmt.Errorf("group %d: replica %#x comes back after it left", g, m.Replica)
		}
		for _, have := range f.groups[g] {
			if have.Replica == m.Replica {
				return fmt.Errorf("group %d: replica %#x added twice", g, m.Replica)
			}
			if have.Learner && g != 0 { // learners of group 0 stay, and one that never starts must not keep others out
				return fmt.Errorf("group %d: a second learner %#x beside %#x: one at a time", g, m.Replica, have.Replica)
			}
		}
		m.Learner = true
		f.groups[g] = append(f.groups[g], m)
		f.match[g][m.Replica] = 0
		return nil
	})
}

func (f *fakeRaft) Promote(_ context.Context, g ident.Group, id uint64) error {
	return f.change(g, func() error {
		for i, m := range f.groups[g] {
			if m.Replica == id && m.Learner && f.match[g][id]+caughtUpEntries >= fakeCommit {
				f.groups[g][i].Learner = false
				return nil
			}
		}
		return fmt.Errorf("group %d: replica %#x is no learner that has caught up", g, id)
	})
}

func (f *fakeRaft) Remove(_ context.Context, g ident.Group, id uint64) error {
	return f.change(g, func() error {
		for i, m := range f.groups[g] {
			if m.Replica == id {
				f.groups[g] = append(append([]host.Member(nil), f.groups[g][:i]...), f.groups[g][i+1:]...)
				f.gone[g][id] = true
				if f.leader[g] == id {
					f.leader[g] = f.groups[g][0].Replica
				}
				return nil
			}
		}
		return fmt.Errorf("group %d: replica %#x is no member", g, id)
	})
}

// stateSource is a Source over a State, with nobody else around.
type stateSource struct {
	d *driver
	f *fakeRaft
}

func (s stateSource) View() *View                         { return s.d.s.View() }
func (s stateSource) Sync(context.Context) (*View, error) { return s.d.s.View(), nil }
func (s stateSource) Exec(_ context.Context, c *Command) (CommandResult, error) {
	if s.f.faults && s.f.r.IntN(10) == 0 {
		return CommandResult{}, oerr.Errorf("fake", oerr.Unavailable, "no leader now")
	}
	r := s.d.apply(*c)
	if r.Code != 0 {
		s.f.bad = errors.Join(s.f.bad, fmt.Errorf("%s: %w", c.Op, r.Err()))
	}
	return r, nil
}

func controllerOf(t *testing.T, d *driver, f *fakeRaft, events *[]Event) *Controller {
	t.Helper()
	src := stateSource{d, f}
	c, err := NewController(ControllerConfig{
		BucketDeps: BucketDeps{Source: src, Spans: &gateway{}}, Replicas: f, Leading: func() bool { return true },
		OnEvent: func(e Event) {
			if events != nil {
				*events = append(*events, e)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pass makes passes, each of which may change a group only once.
func pass(t *testing.T, c *Controller, f *fakeRaft, n int) {
	t.Helper()
	for range n {
		clear(f.changed)
		c.Pass(t.Context())
		f.adopt()
		for g, n := range f.changed {
			if n > 1 {
				f.bad = errors.Join(f.bad, fmt.Errorf("group %d was changed %d times in one pass", g, n))
			}
		}
	}
	if f.bad != nil {
		t.Fatal(f.bad)
	}
}

// checkMembership: Raft and the record agree, every replica is fit, and there are as many voters as there should be.
func checkMembership(v *View, f *fakeRaft) error {
	for id, g := range v.Groups {
		voters, where := 0, map[ident.Node]int{}
		if len(g.Replicas) != len(f.groups[id]) || len(g.Replicas) > len(g.Founders)+1 && id != 0 {
			return fmt.Errorf("group %d: recorded %+v, Raft has %+v", id, g.Replicas, f.groups[id])
		}
		for _, r := range g.Replicas {
			if !fit(v, r) && (id != 0 || !fitGroup0(v, r)) {
				return fmt.Errorf("group %d: replica %+v is on a drive that is %s", id, r, v.Drives[r.Drive].State)
			}
			if where[r.Node]++; where[r.Node] > 1 && domainUnit(v) == unitNode {
				return fmt.Errorf("group %d: two replicas on node %d", id, r.Node)
			}
			if !r.Learner {
				voters++
			}
		}
		want := len(g.Founders)
		if id == 0 {
			want = Group0Voters(memberNodes(v), v.Profile)
			if len(g.Replicas) != memberNodes(v) {
				return fmt.Errorf("group 0 has %d replicas on %d nodes", len(g.Replicas), memberNodes(v))
			}
		}
		if voters != want {
			return fmt.Errorf("group %d: %d voters of %+v, expected %d", id, voters, g.Replicas, want)
		}
	}
	return nil
}

func TestAClusterFormsWhenTheExpectedNodesFollowGroupZero(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 4, 8, 12} {
		d := newDriver(t)
		d.ok(initCommand(nodes))
		var f *fakeRaft
		var c *Controller
		for i := 1; i <= nodes; i++ {
			d.join(i, 1<<40, 1<<40)
			if i == 1 {
				f = newFakeRaft(1, d.s)
				c = controllerOf(t, d, f, nil)
			}
			if i < nodes {
				if pass(t, c, f, 10); d.s.View().Formed {
					t.Fatalf("formed with %d of %d nodes", i, nodes)
				}
			}
		}
		pass(t, c, f, 80)
		v := d.s.View()
		if !v.Formed {
			t.Fatalf("%d nodes: not formed", nodes)
		}
		if err := checkMembership(v, f); err != nil {
			t.Fatalf("%d nodes: %v", nodes, err)
		}
	}
}

func TestANodeThatNeverStartedHoldsFormationUp(t *testing.T) {
	d := newDriver(t)
	d.ok(initCommand(2))
	d.join(1, 1<<40)
	d.join(2, 1<<40)
	f := newFakeRaft(1, d.s)
	st, _ := f.Status(t.Context(), 0)
	if readyToForm(d.s.View(), st) {
		t.Fatal("ready although node 2 does not follow group 0")
	}
	f.groups[0] = append(f.groups[0], host.Member{Replica: host.ReplicaID(3, 1), Node: 2, Learner: true})
	st.Progress[host.ReplicaID(2, 1)] = fakeCommit - caughtUpEntries - 1
	if readyToForm(d.s.View(), st) {
		t.Fatal("ready although node 2 is far behind")
	}
	st.Progress[host.ReplicaID(2, 1)] = fakeCommit - caughtUpEntries
	if !readyToForm(d.s.View(), st) {
		t.Fatal("not ready although both follow")
	}
}

func TestReplicasOfFailedDrivesAreReplacedOneAtATime(t *testing.T) {
	base := seedOf(t)
	for i := range uint64(60) {
		r := rand.New(rand.NewPCG(base+i, 9))
		d := formed(t, 4+r.IntN(3), 1+r.IntN(2))
		f := newFakeRaft(base+i, d.s)
		c := controllerOf(t, d, f, nil)
		pass(t, c, f, 60)
		if err := checkMembership(d.s.View(), f); err != nil {
			t.Fatalf("OBJ_TEST_SEED=%d: at first: %v", base+i, err)
		}
		bad := ident.Drive(1 + r.IntN(len(d.s.View().Drives)))
		if r.IntN(2) == 0 {
			d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: bad, Incarnation: 1, State: DriveFenced}})
		} else {
			d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: bad, Incarnation: 2, UUID: testID(9)}})
		}
		f.faults = true
		pass(t, c, f, 60)
		f.faults = false
		pass(t, c, f, 60)
		if err := checkMembership(d.s.View(), f); err != nil {
			t.Fatalf("OBJ_TEST_SEED=%d: drive %d failed: %v", base+i, bad, err)
		}
	}
}

// TestAReplicaIDThatLeftNeverComesBack fences, activates and formats drives again, one at a time, over and over.
func TestAReplicaIDThatLeftNeverComesBack(t *testing.T) {
	base := seedOf(t)
	for i := range uint64(40) {
		r := rand.New(rand.NewPCG(base+i, 11))
		d := formed(t, 5, 2)
		f := newFakeRaft(base+i, d.s)
		c := controllerOf(t, d, f, nil)
		settle := func(what string, id ident.Drive) {
			f.faults = true
			for range 300 {
				if checkMembership(d.s.View(), f) == nil {
					return
				}
				pass(t, c, f, 1)
			}
			t.Fatalf("OBJ_TEST_SEED=%d: %s drive %d: %v", base+i, what, id, checkMembership(d.s.View(), f))
		}
		settle("before", 0)
		var tainted ident.Drive
		for n := range 8 {
			dr := *d.s.View().Drives[ident.Drive(1+r.IntN(10))]
			if dr.NoMeta {
				continue
			}
			d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: dr.ID, Incarnation: dr.Incarnation, State: DriveFenced}})
			settle("fenced", dr.ID)
			d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: dr.ID, Incarnation: dr.Incarnation, State: DriveActive}})
			settle("activated", dr.ID)
			if old := d.s.View().Drives[tainted]; old != nil {
				d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: old.ID, Incarnation: old.Incarnation + 1, UUID: testID(1000*int(i) + n)}})
				settle("formatted", old.ID)
			}
			tainted = dr.ID
		}
	}
}

func TestANodeWhoseOnlyDriveIsFencedStillFollowsGroupZero(t *testing.T) {
	d := formed(t, 4, 1)
	f := newFakeRaft(1, d.s)
	c := controllerOf(t, d, f, nil)
	pass(t, c, f, 20)
	before := fmt.Sprint(f.groups[0])
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 2, Incarnation: 1, State: DriveFenced}})
	pass(t, c, f, 40)
	if after := fmt.Sprint(f.groups[0]); after != before {
		t.Fatalf("group 0 was %s, became %s", before, after)
	}
	for id := ident.Group(1); id <= DefaultGroupCount; id++ {
		for _, m := range f.groups[id] {
			if m.Node == 2 {
				t.Fatalf("group %d is still on the fenced drive: %+v", id, f.groups[id])
			}
		}
	}
}

func TestWithoutASpareDomainAFailedReplicaStays(t *testing.T) {
	d := formed(t, 3, 1)
	f := newFakeRaft(1, d.s)
	c := controllerOf(t, d, f, nil)
	pass(t, c, f, 20)
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 2, Incarnation: 1, State: DriveFenced}})
	pass(t, c, f, 20)
	for id := ident.Group(1); id <= DefaultGroupCount; id++ {
		if n := len(f.groups[id]); n != 3 {
			t.Fatalf("group %d has %d members: removing one without a successor weakens the group", id, n)
		}
	}
}

func TestTheControllerWaitsForTheGatewayBeforeItFinishesABucket(t *testing.T) {
	w, g := quiet(t)
	now := time.Unix(0, 0)
	leading := true
	c, err := NewController(ControllerConfig{BucketDeps: BucketDeps{Source: g, Spans: g}, Replicas: noChanges{}, Lister: g,
		Leading: func() bool { return leading }, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	step := func(after time.Duration) BucketState {
		now = now.Add(after)
		w.run([]func(){func() { c.Pass(t.Context()) }})
		return w.view.Buckets["abc"].State
	}
	(&driver{t: t, s: w.s, n: 5000}).ok(Command{Op: OpCreateBucket, Bucket: "abc", BucketID: testID(3), Owner: "root"})
	w.view = w.s.View()
	if step(0) != BucketCreating || step(halfDoneGrace-1) != BucketCreating {
		t.Fatal("finished before the grace was over")
	}
	leading = false
	step(time.Hour)
	leading = true
	if step(0) != BucketCreating {
		t.Fatal("a new leadership must begin the grace anew")
	}
	if step(halfDoneGrace) != BucketActive {
		t.Fatal("not finished after the grace")
	}
	w.spans[testID(3)].sealed = true // a deletion that was thought to have failed
	for range DefaultGroupCount + 1 {
		now = now.Add(spanCheckInterval)
		w.run([]func(){func() { c.Pass(t.Context()) }})
	}
	if w.view.Buckets["abc"] != nil || len(w.spans) != 0 {
		t.Fatalf("a sealed bucket was not finished: %+v over %+v", w.view.Buckets["abc"], w.spans)
	}
}

func TestARunningControllerStopsWithItsContext(t *testing.T) {
	d := formed(t, 1, 1)
	f := newFakeRaft(1, d.s)
	c := controllerOf(t, d, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still running")
	}
}

func TestAControllerNamesEverythingItLacks(t *testing.T) {
	_, err := NewController(ControllerConfig{PGCount: -1})
	for _, s := range []string{"source", "span commander", "replica changer", "Leading", "negative"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not name %q", err, s)
		}
	}
}
