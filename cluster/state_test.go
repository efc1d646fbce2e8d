package cluster

import (
	"strings"
	"testing"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

func TestCommandsThatMakeNoSenseAreRefused(t *testing.T) {
	id := func(n int) ident.ID { return testID(n) }
	node := func(change func(*Node)) *Node { n := testNode(9); change(n); return n }
	form := func(d *driver) { d.ok(Command{Op: OpForm}) }
	bucket := func(d *driver) {
		form(d)
		d.ok(Command{Op: OpCreateBucket, Bucket: "taken", BucketID: id(7), Owner: "root"})
	}
	badInit := func(change func(*Command)) Command { c := initCommand(1); change(&c); return c }
	for _, c := range []struct {
		name  string
		fresh bool // before init; else three nodes with a drive each
		setup func(*driver)
		cmd   Command
		kind  oerr.Kind
	}{
		{"anything before init", true, nil, Command{Op: OpAddNode, Node: testNode(1)}, oerr.Unavailable},
		{"init twice", false, nil, initCommand(1), oerr.Exists},
		{"init without cluster id", true, nil, badInit(func(c *Command) { c.ClusterID = ident.ID{} }), oerr.InvalidArgument},
		{"init of another format", true, nil, badInit(func(c *Command) { c.Format = 2 }), oerr.InvalidArgument},
		{"init expecting no node", true, nil, badInit(func(c *Command) { c.Expect = 0 }), oerr.InvalidArgument},
		{"init with a short secret", true, nil, badInit(func(c *Command) { c.Secret = "short" }), oerr.InvalidArgument},
		{"init without access key", true, nil, badInit(func(c *Command) { c.AccessKey = "" }), oerr.InvalidArgument},
		{"init without CA", true, nil, badInit(func(c *Command) { c.CAKey = nil }), oerr.InvalidArgument},
		{"init with an odd gossip key", true, nil, badInit(func(c *Command) { c.GossipKey = make([]byte, 31) }), oerr.InvalidArgument},
		{"unknown command", false, nil, Command{Op: "dance"}, oerr.InvalidArgument},
		{"node without token", false, nil, Command{Op: OpAddNode, Node: testNode(9)}, oerr.PermissionDenied},
		{"node with a used token", false, nil, Command{Op: OpAddNode, Node: testNode(9), Token: testToken(3)}, oerr.PermissionDenied},
		{"node with an expired token", false, func(d *driver) {
			d.ok(Command{Op: OpAddToken, Token: testToken(9), Now: 10, Expires: 20})
		}, Command{Op: OpAddNode, Node: testNode(9), Token: testToken(9), Now: 20}, oerr.PermissionDenied},
		{"node that chooses its number", false, nil, Command{Op: OpAddNode, Node: node(func(n *Node) { n.ID = 1 })}, oerr.InvalidArgument},
		{"node of a known name", false, nil, Command{Op: OpAddNode, Node: node(func(n *Node) { n.Name = "n1" })}, oerr.Exists},
		{"node of a known address", false, nil, Command{Op: OpAddNode, Node: node(func(n *Node) { n.Internode = testNode(2).Internode })}, oerr.Exists},
		{"node without port", false, nil, Command{Op: OpAddNode, Node: node(func(n *Node) { n.S3 = "host" })}, oerr.InvalidArgument},
		{"node of a strange name", false, nil, Command{Op: OpAddNode, Node: node(func(n *Node) { n.Name = "a b" })}, oerr.InvalidArgument},
		{"update of a stranger", false, nil, Command{Op: OpUpdateNode, Node: &Node{ID: 9}}, oerr.InvalidArgument},
		{"update to a taken address", false, nil, Command{Op: OpUpdateNode, Node: &Node{ID: 1, Internode: testNode(2).Internode}}, oerr.Exists},
		{"rename", false, nil, Command{Op: OpUpdateNode, Node: &Node{ID: 1, Name: "other"}}, oerr.InvalidArgument},
		{"removal of a node with placement groups", false, form, Command{Op: OpUpdateNode, Node: &Node{ID: 1, Removed: true}}, oerr.InvalidArgument},
		{"drive of a stranger", false, nil, Command{Op: OpAddDrive, Drive: &Drive{Node: 9, UUID: id(5), Path: "/d"}}, oerr.InvalidArgument},
		{"drive without uuid", false, nil, Command{Op: OpAddDrive, Drive: &Drive{Node: 1, Path: "/d"}}, oerr.InvalidArgument},
		{"drive on a relative path", false, nil, Command{Op: OpAddDrive, Drive: &Drive{Node: 1, UUID: id(5), Path: "d"}}, oerr.InvalidArgument},
		{"drive of another node", false, nil, Command{Op: OpAddDrive, Drive: &Drive{Node: 2, UUID: testID(100_100), Path: "/x"}}, oerr.Exists},
		{"drive on a used path", false, nil, Command{Op: OpAddDrive, Drive: &Drive{Node: 1, UUID: id(5), Path: "/data/0"}}, oerr.Exists},
		{"state of an unknown drive", false, nil, Command{Op: OpDriveState, Drive: &Drive{ID: 9, Incarnation: 1}}, oerr.InvalidArgument},
		{"state of an old incarnation", false, nil, Command{Op: OpDriveState, Drive: &Drive{ID: 1, Incarnation: 0, State: DriveFenced}}, oerr.WrongIncarnation},
		{"incarnation skipped", false, nil, Command{Op: OpDriveState, Drive: &Drive{ID: 1, Incarnation: 3, UUID: id(5)}}, oerr.WrongIncarnation},
		{"incarnation with the old uuid", false, nil, Command{Op: OpDriveState, Drive: &Drive{ID: 1, Incarnation: 2, UUID: testID(100_100)}}, oerr.InvalidArgument},
		{"unknown drive state", false, nil, Command{Op: OpDriveState, Drive: &Drive{ID: 1, Incarnation: 1, State: 7}}, oerr.InvalidArgument},
		{"removal of a drive with placement groups", false, form, Command{Op: OpDriveState, Drive: &Drive{ID: 1, Incarnation: 1, State: DriveRemoved}}, oerr.InvalidArgument},
		{"form twice", false, form, Command{Op: OpForm}, oerr.Exists},
		{"form with too large a profile", false, nil, Command{Op: OpForm, Profile: erasure.Profile{K: 2, M: 2}}, oerr.InvalidArgument},
		{"form with too few nodes", false, func(d *driver) {
			d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 3, Incarnation: 1, State: DriveFenced}})
		}, Command{Op: OpForm}, oerr.Unavailable},
		{"replicas of an unknown group", false, nil, Command{Op: OpSetReplicas, Group: 5, Replicas: []Replica{{ID: 1, Node: 1, Drive: 1}}}, oerr.InvalidArgument},
		{"no replicas", false, nil, Command{Op: OpSetReplicas}, oerr.InvalidArgument},
		{"replicas without voter", false, nil, Command{Op: OpSetReplicas, Replicas: []Replica{{ID: host.ReplicaID(1, 1), Node: 1, Drive: 1, Learner: true}}}, oerr.InvalidArgument},
		{"replica of a later incarnation", false, nil, Command{Op: OpSetReplicas, Replicas: []Replica{{ID: host.ReplicaID(1, 2), Node: 1, Drive: 1}}}, oerr.InvalidArgument},
		{"replica on another node's drive", false, nil, Command{Op: OpSetReplicas, Replicas: []Replica{{ID: host.ReplicaID(1, 1), Node: 2, Drive: 1}}}, oerr.InvalidArgument},
		{"replica twice", false, nil, Command{Op: OpSetReplicas, Replicas: []Replica{{ID: host.ReplicaID(1, 1), Node: 1, Drive: 1}, {ID: host.ReplicaID(1, 1), Node: 1, Drive: 1}}}, oerr.InvalidArgument},
		{"bucket before formation", false, nil, Command{Op: OpCreateBucket, Bucket: "abc", BucketID: id(7), Owner: "root"}, oerr.Unavailable},
		{"bucket of a bad name", false, form, Command{Op: OpCreateBucket, Bucket: "A", BucketID: id(7), Owner: "root"}, oerr.InvalidArgument},
		{"bucket without id", false, form, Command{Op: OpCreateBucket, Bucket: "abc", Owner: "root"}, oerr.InvalidArgument},
		{"bucket without owner", false, form, Command{Op: OpCreateBucket, Bucket: "abc", BucketID: id(7)}, oerr.InvalidArgument},
		{"bucket of a taken name", false, bucket, Command{Op: OpCreateBucket, Bucket: "taken", BucketID: id(8), Owner: "other"}, oerr.BucketExists},
		{"bucket of a used id", false, bucket, Command{Op: OpCreateBucket, Bucket: "another", BucketID: id(7), Owner: "root"}, oerr.InvalidArgument},
		{"state of an unknown bucket", false, form, Command{Op: OpBucketState, Bucket: "abc", BucketID: id(7), State: 1}, oerr.NoSuchBucket},
		{"state of a namesake", false, bucket, Command{Op: OpBucketState, Bucket: "taken", BucketID: id(8), State: 1}, oerr.NoSuchBucket},
		{"creating to deleting", false, bucket, Command{Op: OpBucketState, Bucket: "taken", BucketID: id(7), State: 2}, oerr.InvalidArgument},
		{"unknown bucket state", false, bucket, Command{Op: OpBucketState, Bucket: "taken", BucketID: id(7), State: 9}, oerr.InvalidArgument},
		{"removal of a creating bucket", false, bucket, Command{Op: OpRemoveBucket, Bucket: "taken", BucketID: id(7)}, oerr.StaleEpoch},
		{"removal of an unknown bucket", false, form, Command{Op: OpRemoveBucket, Bucket: "abc", BucketID: id(7)}, oerr.NoSuchBucket},
		{"token that is no hash", false, nil, Command{Op: OpAddToken, Token: "secret", Expires: 1 << 50}, oerr.InvalidArgument},
		{"token that has expired", false, nil, Command{Op: OpAddToken, Token: testToken(20), Now: 10, Expires: 10}, oerr.InvalidArgument},
		{"no settings", false, nil, Command{Op: OpSetSetting}, oerr.InvalidArgument},
		{"setting of a bad name", false, nil, Command{Op: OpSetSetting, Settings: map[string]string{"A b": "1"}}, oerr.InvalidArgument},
		{"setting too long", false, nil, Command{Op: OpSetSetting, Settings: map[string]string{"a": strings.Repeat("x", MaxSettingValue+1)}}, oerr.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDriver(t)
			if !c.fresh {
				d = clusterOf(t, 3, 1)
			}
			if c.setup != nil {
				c.setup(d)
			}
			d.s.takeChanges()
			r := d.apply(c.cmd)
			if err := r.Err(); !oerr.Is(err, c.kind) {
				t.Fatalf("answered %v, expected kind %s", err, c.kind)
			}
			for _, ch := range d.s.takeChanges() {
				if ch.key[0] != rowDedup {
					t.Errorf("a refused command changed row %q", ch.key)
				}
			}
		})
	}
}

func TestAnOneNodeClusterThatIsFormedRefusesToGrow(t *testing.T) {
	d := formed(t, 1, 4)
	d.ok(Command{Op: OpAddToken, Token: testToken(2), Expires: 1 << 50})
	r := d.apply(Command{Op: OpAddNode, Node: testNode(2), Token: testToken(2)})
	if err := r.Err(); !oerr.Is(err, oerr.NotImplemented) {
		t.Fatalf("answered %v, expected not_implemented", err)
	}
}

func TestARepeatedRequestGetsTheFirstResult(t *testing.T) {
	d := clusterOf(t, 1, 1)
	d.ok(Command{Op: OpAddToken, Token: testToken(2), Expires: 1 << 50})
	c := Command{Op: OpAddNode, Node: testNode(2), Token: testToken(2), RequestID: testID(77)}
	first := d.ok(c)
	if again := d.ok(c); again.Node != first.Node || again.Index != first.Index {
		t.Fatalf("repeated request was answered %+v, first %+v", again, first)
	}
	for range DedupWindow {
		d.ok(Command{Op: OpSetSetting, Settings: map[string]string{"a": "1"}})
	}
	c.FirstIndex = first.Index
	if err := d.apply(c).Err(); !oerr.Is(err, oerr.OutcomeUnknown) {
		t.Fatalf("a retry older than the window was answered %v, expected outcome_unknown", err)
	}
	if len(d.s.dedup.rows) != DedupWindow || len(d.s.dedup.byID) != DedupWindow {
		t.Fatalf("the window holds %d rows and %d ids, expected %d", len(d.s.dedup.rows), len(d.s.dedup.byID), DedupWindow)
	}
}

func TestADriveFormattedAgainBumpsTheMapEpochOfItsPlacementGroups(t *testing.T) {
	d := formed(t, 4, 2)
	before := d.s.View()
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 3, Incarnation: 1, State: DriveFenced}})
	if e := d.s.View().Epoch; e != before.Epoch {
		t.Fatalf("fencing moved the epoch to %d: nothing was placed anew", e)
	}
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 3, Incarnation: 2, UUID: testID(5)}})
	after := d.s.View()
	if after.Epoch != before.Epoch+1 || after.Drives[3].State != DriveActive || after.Drives[3].UUID != testID(5) {
		t.Fatalf("epoch %d, drive %+v", after.Epoch, after.Drives[3])
	}
	for i, p := range after.PGs {
		want := before.Epoch
		for _, id := range p.Drives {
			if id == 3 {
				want = after.Epoch
			}
		}
		if p.Epoch != want {
			t.Errorf("placement group %d is at epoch %d, expected %d", i, p.Epoch, want)
		}
	}
	if before.Drives[3].Incarnation != 1 || before.PGs[0].Epoch != before.Epoch {
		t.Error("a published view changed")
	}
}

func TestBucketsGoToTheGroupWithFewest(t *testing.T) {
	d := formed(t, 4, 1)
	for i := range 3 * DefaultGroupCount {
		d.ok(Command{Op: OpCreateBucket, Bucket: bucketName(i), BucketID: testID(i + 10), Owner: "root"})
	}
	per := map[ident.Group]int{}
	for _, b := range d.s.View().Buckets {
		per[b.Spans[0].Group]++
	}
	for g := ident.Group(1); g <= DefaultGroupCount; g++ {
		if per[g] != 3 {
			t.Errorf("group %d has %d buckets, expected 3", g, per[g])
		}
	}
}

func TestOnlyTheNewestDeletionAttemptPutsABucketBack(t *testing.T) {
	d := formed(t, 4, 1)
	b := Command{Bucket: "abc", BucketID: testID(10), Owner: "root"}
	step := func(op Op, state BucketState, attempt uint64) CommandResult {
		c := b
		c.Op, c.State, c.Attempt = op, uint8(state), attempt
		return d.apply(c)
	}
	step(OpCreateBucket, 0, 0)
	step(OpBucketState, BucketActive, 0)
	first := step(OpBucketState, BucketDeleting, 0).Bucket.Attempt
	second := step(OpBucketState, BucketDeleting, 0).Bucket.Attempt
	if first == 0 || second <= first {
		t.Fatalf("attempts %d and %d", first, second)
	}
	if err := step(OpBucketState, BucketActive, first).Err(); !oerr.Is(err, oerr.StaleEpoch) {
		t.Fatalf("the superseded attempt was answered %v, expected stale_epoch", err)
	}
	if err := step(OpBucketState, BucketActive, second).Err(); err != nil {
		t.Fatal(err)
	}
	step(OpBucketState, BucketDeleting, 0)
	if err := step(OpRemoveBucket, 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := step(OpRemoveBucket, 0, 0).Err(); err != nil {
		t.Fatalf("a repeated removal: %v", err)
	}
	if err := step(OpCreateBucket, 0, 0).Err(); !oerr.Is(err, oerr.InvalidArgument) {
		t.Fatalf("the id of a removed bucket was answered %v, expected invalid_argument", err)
	}
}

func TestRemovingANodeTakesItsDrivesAlong(t *testing.T) {
	d := clusterOf(t, 3, 2)
	d.ok(Command{Op: OpUpdateNode, Node: &Node{ID: 2, Removed: true}})
	v := d.s.View()
	if !v.Nodes[2].Removed || v.Drives[3].State != DriveRemoved || v.Drives[4].State != DriveRemoved || v.Drives[1].State != DriveActive {
		t.Fatalf("node %+v, drives %+v %+v", v.Nodes[2], v.Drives[3], v.Drives[4])
	}
	d.join(2) // the name is free again, the number is not
	if n := d.s.View().Nodes[4]; n == nil || n.Name != "n2" {
		t.Fatalf("node 4 is %+v", n)
	}
}

func TestTheFirstDriveFoundsGroupZero(t *testing.T) {
	v := clusterOf(t, 3, 1).s.View()
	g := v.Groups[0]
	if len(g.Replicas) != 1 || g.Replicas[0] != (Replica{ID: host.ReplicaID(1, 1), Node: 1, Drive: 1}) {
		t.Fatalf("group 0 is %+v", g)
	}
}
