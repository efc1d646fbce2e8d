package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"objstore/internal/ident"
	"objstore/metadata/host"
)

// memRows is a ReadWriter in memory.
type memRows struct{ rows map[string][]byte }

func newMemRows() *memRows { return &memRows{rows: map[string][]byte{}} }

func (m *memRows) Get(key []byte) ([]byte, bool, error) {
	v, ok := m.rows[string(key)]
	return v, ok, nil
}

func (m *memRows) Iter(lower, upper []byte) (host.Iterator, error) {
	it := &memIter{at: -1}
	for _, k := range slices.Sorted(maps.Keys(m.rows)) {
		if k >= string(lower) && (upper == nil || k < string(upper)) {
			it.keys = append(it.keys, k)
			it.values = append(it.values, m.rows[k])
		}
	}
	return it, nil
}

func (m *memRows) Set(key, value []byte) error {
	m.rows[string(key)] = bytes.Clone(value)
	return nil
}

func (m *memRows) Delete(key []byte) error {
	delete(m.rows, string(key))
	return nil
}

func (m *memRows) DeleteRange(lower, upper []byte) error {
	maps.DeleteFunc(m.rows, func(k string, _ []byte) bool { return k >= string(lower) && k < string(upper) })
	return nil
}

func (m *memRows) clone() *memRows { return &memRows{rows: maps.Clone(m.rows)} }

type memIter struct {
	keys   []string
	values [][]byte
	at     int
}

func (i *memIter) Next() bool    { i.at++; return i.at < len(i.keys) }
func (i *memIter) Key() []byte   { return []byte(i.keys[i.at]) }
func (i *memIter) Value() []byte { return i.values[i.at] }
func (i *memIter) Close() error  { return nil }
func (i *memIter) SeekGE(key []byte) bool {
	i.at, _ = slices.BinarySearch(i.keys, string(key))
	return i.at < len(i.keys)
}

// testID is a deterministic id.
func testID(n int) ident.ID {
	var id ident.ID
	copy(id[:], fmt.Sprintf("id%014d", n))
	return id
}

// driver applies commands with fresh request ids.
type driver struct {
	t *testing.T
	s *State
	n int
}

func newDriver(t *testing.T) *driver { return &driver{t: t, s: NewState()} }

func (d *driver) apply(c Command) CommandResult {
	d.n++
	if c.RequestID.IsZero() {
		c.RequestID = testID(1_000_000 + d.n)
	}
	if c.Now == 0 {
		c.Now = int64(1000 + d.n)
	}
	return d.s.Apply(&c)
}

func (d *driver) ok(c Command) CommandResult {
	d.t.Helper()
	r := d.apply(c)
	if r.Code != 0 {
		d.t.Fatalf("%s: refused: %v", c.Op, r.Err())
	}
	return r
}

func initCommand(expect int) Command {
	return Command{
		Op: OpInit, ClusterID: testID(1), Format: FormatVersion, Expect: expect, AccessKey: "root-access", Secret: "root-secret-value",
		CACert: []byte("ca-cert"), CAKey: []byte("sealed-ca-key"), GossipKey: make([]byte, 32),
	}
}

func testNode(i int) *Node {
	return &Node{
		Name: fmt.Sprintf("n%d", i), S3: fmt.Sprintf("10.0.%d.%d:9000", i/250, i%250+1), Admin: fmt.Sprintf("10.0.%d.%d:9001", i/250, i%250+1),
		Internode: fmt.Sprintf("10.0.%d.%d:9002", i/250, i%250+1), Gossip: fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250+1), StartID: testID(50_000 + i),
	}
}

func testToken(i int) string { return fmt.Sprintf("%064x", i+1) }

// join adds node i with drives of these capacities.
func (d *driver) join(i int, capacities ...uint64) ident.Node {
	d.t.Helper()
	c := Command{Op: OpAddNode, Node: testNode(i)}
	if i > 1 {
		d.ok(Command{Op: OpAddToken, Token: testToken(i), Expires: 1 << 50})
		c.Token = testToken(i)
	}
	node := d.ok(c).Node
	for j, size := range capacities {
		d.ok(Command{Op: OpAddDrive, Drive: &Drive{Node: node, UUID: testID(100_000 + 100*i + j), Path: fmt.Sprintf("/data/%d", j), Capacity: size}})
	}
	return node
}

// clusterOf returns a state with nodes that have the same number of equal drives.
func clusterOf(t *testing.T, nodes, drives int) *driver {
	t.Helper()
	d := newDriver(t)
	d.ok(initCommand(nodes))
	for i := 1; i <= nodes; i++ {
		sizes := make([]uint64, drives)
		for j := range sizes {
			sizes[j] = 1 << 40
		}
		d.join(i, sizes...)
	}
	return d
}

func formed(t *testing.T, nodes, drives int) *driver {
	t.Helper()
	d := clusterOf(t, nodes, drives)
	d.ok(Command{Op: OpForm})
	return d
}
