package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"objstore/internal/ident"
	"objstore/metadata/host"
)

func bucketName(i int) string { return fmt.Sprintf("bucket-%d", i) }

// randomCommand makes commands that are near enough to sense that about half of them are accepted.
func randomCommand(r *rand.Rand, n int, v *View) Command {
	c := Command{RequestID: testID(n), Now: int64(1000 + n)}
	if r.IntN(20) == 0 && n > 0 {
		c.RequestID = testID(r.IntN(n))
	}
	node, drive := ident.Node(r.IntN(9)), ident.Drive(r.IntN(20))
	switch r.IntN(14) {
	case 0:
		c.Op, c.Node, c.Token = OpAddNode, testNode(r.IntN(12)), testToken(r.IntN(10))
	case 1:
		c.Op, c.Node = OpUpdateNode, &Node{ID: node, StartID: testID(n), S3: testNode(r.IntN(12)).S3, Removed: r.IntN(30) == 0}
	case 2, 3:
		c.Op, c.Drive = OpAddDrive, &Drive{Node: node, UUID: testID(r.IntN(200)), Path: fmt.Sprintf("/d%d", r.IntN(4)), Capacity: r.Uint64N(1 << 44)}
	case 4, 5:
		d := &Drive{ID: drive, Incarnation: 1, State: DriveState(r.IntN(3))}
		if have := v.Drives[drive]; have != nil {
			d.Incarnation = have.Incarnation + ident.Incarnation(r.IntN(2))
		}
		if r.IntN(2) == 0 {
			d.UUID = testID(r.IntN(200))
		}
		c.Op, c.Drive = OpDriveState, d
	case 6:
		c.Op, c.PGCount, c.GroupCount = OpForm, 20, 3
	case 7:
		c.Op, c.Group = OpSetReplicas, ident.Group(r.IntN(4))
		for range 1 + r.IntN(3) {
			id := ident.Drive(r.IntN(20))
			if d := v.Drives[id]; d != nil {
				c.Replicas = append(c.Replicas, Replica{ID: host.ReplicaID(id, d.Incarnation), Node: d.Node, Drive: id, Learner: r.IntN(3) == 0})
			}
		}
	case 8, 9:
		c.Op, c.Bucket, c.BucketID, c.Owner = OpCreateBucket, bucketName(r.IntN(6)), testID(r.IntN(500)), "root"
	case 10, 11:
		c.Op, c.Bucket, c.State = OpBucketState, bucketName(r.IntN(6)), uint8(r.IntN(3))
		if b := v.Buckets[c.Bucket]; b != nil {
			c.BucketID, c.Attempt = b.ID, b.Attempt
		}
	case 12:
		c.Op, c.Bucket = OpRemoveBucket, bucketName(r.IntN(6))
		if b := v.Buckets[c.Bucket]; b != nil {
			c.BucketID = b.ID
		}
	case 13:
		if r.IntN(2) == 0 {
			c.Op, c.Token, c.Expires = OpAddToken, testToken(r.IntN(10)), c.Now+int64(r.IntN(100))
		} else {
			c.Op, c.Settings = OpSetSetting, map[string]string{fmt.Sprintf("s%d", r.IntN(4)): []string{"", "x"}[r.IntN(2)]}
		}
	}
	return c
}

// checkStep holds for every pair of consecutive views.
func checkStep(before, after *View) error {
	if after.Epoch < before.Epoch || after.SpanEpoch < before.SpanEpoch || after.Index <= before.Index || before.Formed && !after.Formed {
		return fmt.Errorf("went back: %s, then %s", before, after)
	}
	for id, d := range before.Drives {
		n := after.Drives[id]
		switch {
		case n == nil || n.Node != d.Node:
			return fmt.Errorf("drive %d changed its node: %+v, then %+v", id, d, n)
		case n.Incarnation < d.Incarnation || n.Incarnation == d.Incarnation && n.UUID != d.UUID:
			return fmt.Errorf("drive %d: incarnation went back or kept with another uuid: %+v, then %+v", id, d, n)
		case d.State == DriveRemoved && n.State != DriveRemoved:
			return fmt.Errorf("drive %d came back", id)
		}
	}
	for id, n := range before.Nodes {
		if a := after.Nodes[id]; a == nil || a.Name != n.Name || n.Removed && !a.Removed {
			return fmt.Errorf("node %d: %+v, then %+v", id, n, a)
		}
	}
	for i, p := range before.PGs {
		a := after.PGs[i]
		if a.Epoch < p.Epoch || a.Epoch > after.Epoch || !reflect.DeepEqual(a.Drives, p.Drives) {
			return fmt.Errorf("placement group %d: %+v, then %+v", i, p, a)
		}
	}
	return nil
}

// checkView holds for every view.
func checkView(v *View) error {
	uuids, names := map[ident.ID]ident.Drive{}, map[string]ident.Node{}
	for id, d := range v.Drives {
		if other, ok := uuids[d.UUID]; ok || d.ID != id || d.Incarnation == 0 {
			return fmt.Errorf("drive %d (%+v) shares its uuid with drive %d, or is under a wrong number", id, d, other)
		}
		uuids[d.UUID] = id
		if n := v.Nodes[d.Node]; n == nil || n.Removed && d.State != DriveRemoved {
			return fmt.Errorf("drive %d is owned by %+v", id, n)
		}
	}
	for id, n := range v.Nodes {
		if n.Removed {
			continue
		}
		if other, ok := names[n.Name]; ok {
			return fmt.Errorf("nodes %d and %d are both %s", id, other, n.Name)
		}
		names[n.Name] = id
	}
	if len(v.Buckets) != len(v.ByID) {
		return fmt.Errorf("%d buckets by name, %d by id", len(v.Buckets), len(v.ByID))
	}
	for name, b := range v.Buckets {
		if b.Name != name || v.ByID[b.ID] != b || len(b.Spans) != 1 || v.Groups[b.Spans[0].Group] == nil {
			return fmt.Errorf("bucket %s is %+v", name, b)
		}
	}
	return nil
}

// sameView compares what two views hold, secrets included.
func sameView(a, b *View) bool {
	x, y := *a, *b
	if !reflect.DeepEqual(a.Secrets(), b.Secrets()) {
		return false
	}
	x.secrets, y.secrets = nil, nil
	return reflect.DeepEqual(x, y)
}

func seedOf(t *testing.T) uint64 {
	if s := os.Getenv("OBJ_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return rand.Uint64()
}

// Two machines apply the same log; one of them is thrown away and made anew from its rows now and then. After each
// entry their rows are byte-identical, the invariants hold, and ids once handed out are never handed out again.
func TestRandomCommandsKeepTheInvariants(t *testing.T) {
	seed := seedOf(t)
	accepted := 0
	for run := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, run))
		if err := runRandom(r, 400, &accepted); err != nil {
			t.Fatalf("OBJ_TEST_SEED=%d, run %d: %v", seed, run, err)
		}
	}
	if accepted < 30*400/8 {
		t.Errorf("only %d of %d commands were accepted: the test checks too little", accepted, 30*400)
	}
}

func runRandom(r *rand.Rand, steps int, accepted *int) error {
	rows, other := newMemRows(), newMemRows()
	var view *View
	a := NewMachine(MachineConfig{OnView: func(v *View) { view = v }})
	b := NewMachine(MachineConfig{})
	nodes, drives, buckets := map[ident.Node]ident.ID{}, map[ident.Drive]ident.ID{}, map[ident.ID]string{}
	index := uint64(0)
	for n := range steps {
		index += 1 + r.Uint64N(3)
		c := initCommand(1 + r.IntN(4))
		c.RequestID, c.Now = testID(0), 1
		if view != nil && view.Format != 0 {
			c = randomCommand(r, n, view)
		}
		data, err := c.Encode()
		if err != nil {
			return err
		}
		if r.IntN(50) == 0 {
			data = data[:len(data)/2]
		}
		before := view
		ra, err := a.Apply(rows, 0, index, data)
		if err != nil {
			return err
		}
		if r.IntN(30) == 0 {
			b = NewMachine(MachineConfig{})
		}
		rb, err := b.Apply(other, 0, index, data)
		if err != nil {
			return err
		}
		if !bytes.Equal(ra, rb) || !maps.EqualFunc(rows.rows, other.rows, bytes.Equal) {
			return fmt.Errorf("entry %d (%s): replicas differ: %s against %s", index, &c, ra, rb)
		}
		a.Applied(0, index)
		if before != nil {
			if err := checkStep(before, view); err != nil {
				return fmt.Errorf("entry %d (%s): %w", index, &c, err)
			}
		}
		if err := checkView(view); err != nil {
			return fmt.Errorf("entry %d (%s): %w", index, &c, err)
		}
		res, err := DecodeResult(ra)
		if err != nil {
			return err
		}
		if res.Code == 0 {
			*accepted++
		}
		if err := checkHandedOut(c, res, index, nodes, drives, buckets); err != nil {
			return fmt.Errorf("entry %d (%s): %w", index, &c, err)
		}
	}
	loaded, err := LoadView(rows)
	if err != nil {
		return err
	}
	if !sameView(loaded, view) {
		x, _ := json.Marshal(loaded)
		y, _ := json.Marshal(view)
		return fmt.Errorf("the view loaded from rows differs:\n%s\n%s", x, y)
	}
	return nil
}

func checkHandedOut(c Command, res CommandResult, index uint64, nodes map[ident.Node]ident.ID, drives map[ident.Drive]ident.ID, buckets map[ident.ID]string) error {
	if res.Code != 0 || res.Index != index {
		return nil // refused, or a repeated request
	}
	switch c.Op {
	case OpAddNode:
		if by, ok := nodes[res.Node]; ok {
			return fmt.Errorf("node number %d was handed out before, to request %s", res.Node, by)
		}
		nodes[res.Node] = c.RequestID
	case OpAddDrive:
		if by, ok := drives[res.Drive]; ok && by != c.Drive.UUID {
			return fmt.Errorf("drive number %d was handed out before, to uuid %s", res.Drive, by)
		}
		drives[res.Drive] = c.Drive.UUID
	case OpCreateBucket:
		if name, ok := buckets[res.Bucket.ID]; ok && (name != c.Bucket || res.Bucket.State != BucketCreating) {
			return fmt.Errorf("bucket id %s was used before, by %s", res.Bucket.ID, name)
		}
		buckets[res.Bucket.ID] = c.Bucket
	case OpDriveState:
		if !c.Drive.UUID.IsZero() {
			drives[c.Drive.ID] = c.Drive.UUID
		}
	}
	return nil
}
