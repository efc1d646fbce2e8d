package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"objstore/internal/oerr"
	"objstore/metadata/host"
)

func encoded(t testing.TB, c Command) []byte {
	t.Helper()
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// formedRows returns the rows of a formed cluster and the index of the last entry.
func formedRows(t testing.TB) (*memRows, uint64) {
	t.Helper()
	rows, m := newMemRows(), NewMachine(MachineConfig{})
	cmds := []Command{initCommand(1), {Op: OpAddNode, Node: testNode(1)},
		{Op: OpAddDrive, Drive: &Drive{Node: 1, UUID: testID(5), Path: "/d", Capacity: 1 << 40}}, {Op: OpForm}}
	for i, c := range cmds {
		c.RequestID = testID(900 + i)
		res, err := m.Apply(rows, 0, uint64(i+1), m.Stamp(encoded(t, c), 1700000000000))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := DecodeResult(res); err != nil || r.Code != 0 {
			t.Fatalf("%s: %+v, %v", c.Op, r, err)
		}
	}
	return rows, uint64(len(cmds))
}

func TestSecretsSurviveInRowsAndShowNowhereElse(t *testing.T) {
	rows, _ := formedRows(t)
	v, err := LoadView(rows)
	if err != nil {
		t.Fatal(err)
	}
	sec := v.Secrets()
	if string(sec.CAKey) != "sealed-ca-key" || len(sec.GossipKey) != 32 || string(v.Keys["root-access"].Secret) != "root-secret-value" {
		t.Fatalf("secrets were lost: %d bytes of CA key", len(sec.CAKey))
	}
	cmd := initCommand(1)
	printed := fmt.Sprintf("%v %+v %#v %s", v, v, v, v) + fmt.Sprintf("%v %+v %#v", *v.Keys["root-access"], v.Keys["root-access"].Secret, v.Keys["root-access"].Secret) +
		fmt.Sprintf("%v %+v %#v", sec, sec, sec) + fmt.Sprintf("%v %+v %#v", &cmd, &cmd, &cmd)
	for _, x := range []any{v, sec, v.Keys["root-access"]} {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		printed += string(b)
	}
	for _, s := range []string{"sealed-ca-key", "root-secret-value", "c2VhbGVkLWNhLWtleQ"} {
		if strings.Contains(printed, s) {
			t.Errorf("%q shows in %s", s, printed)
		}
	}
}

func TestStampPutsTheLeadersClockIn(t *testing.T) {
	m := NewMachine(MachineConfig{})
	c, err := DecodeCommand(m.Stamp(encoded(t, Command{Op: OpForm, RequestID: testID(1), Now: 5}), 77))
	if err != nil || c.Now != 77 || c.Op != OpForm {
		t.Fatalf("%+v, %v", c, err)
	}
	if got := m.Stamp([]byte("{"), 77); string(got) != "{" {
		t.Fatalf("an entry that does not decode became %q", got)
	}
}

func TestARefusedEntryDoesNotStopTheReplica(t *testing.T) {
	rows, last := formedRows(t)
	m := NewMachine(MachineConfig{})
	for i, data := range []string{"", "{", `{"op":"form"}{}`, `{"op":"form","color":"red"}`, strings.Repeat("x", MaxCommandSize+1)} {
		res, err := m.Apply(rows, 0, last+1+uint64(i), []byte(data))
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		if r, err := DecodeResult(res); err != nil || !oerr.Is(r.Err(), oerr.InvalidArgument) {
			t.Errorf("entry %d was answered %+v, %v", i, r, err)
		}
	}
}

func TestTheMachineNoticesRowsThatASnapshotReplaced(t *testing.T) {
	rows, last := formedRows(t)
	var views []*View
	current := newMemRows()
	m := NewMachine(MachineConfig{
		OnView: func(v *View) { views = append(views, v) },
		Read:   func(f func(host.Reader) error) error { return f(current) },
	})
	if _, err := m.Load(current); err != nil {
		t.Fatal(err)
	}
	current = rows // installed
	m.Applied(0, last+3)
	got := views[len(views)-1]
	if !got.Formed || got.Index != last+3 {
		t.Fatalf("the view after the snapshot is %s", got)
	}
	m.Applied(0, last+2)
	if n := len(views); views[n-1] != got {
		t.Fatal("an older view was published after a newer one")
	}
}

func TestApplyNoticesThatItsRowsAreOthers(t *testing.T) {
	rows, last := formedRows(t)
	behind := newMemRows()
	m := NewMachine(MachineConfig{})
	cmd := initCommand(1)
	cmd.RequestID = testID(1)
	if _, err := m.Apply(behind, 0, 1, encoded(t, cmd)); err != nil {
		t.Fatal(err)
	}
	// A snapshot has replaced the rows: the cache of index 1 must not be used for them.
	res, err := m.Apply(rows, 0, last+1, encoded(t, Command{Op: OpCreateBucket, RequestID: testID(9), Bucket: "abc", BucketID: testID(10), Owner: "root"}))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := DecodeResult(res); err != nil || r.Code != 0 {
		t.Fatalf("answered %+v, %v", r, err)
	}
}

func TestAnEntryThatWasAppliedIsNotAppliedAgain(t *testing.T) {
	rows, last := formedRows(t)
	m := NewMachine(MachineConfig{})
	if _, err := m.Apply(rows, 0, last, encoded(t, Command{Op: OpForm, RequestID: testID(9)})); err == nil {
		t.Fatal("an index that the rows reflect already was accepted")
	}
	if _, err := m.Apply(rows, 3, last+1, nil); err == nil {
		t.Fatal("an entry of another group was accepted")
	}
}

// failingRows fails the n-th write.
type failingRows struct {
	*memRows
	left int
}

func (f *failingRows) Set(k, v []byte) error {
	if f.left--; f.left < 0 {
		return errors.New("disk on fire")
	}
	return f.memRows.Set(k, v)
}

func TestAFailedWriteLeavesNoStateAheadOfTheRows(t *testing.T) {
	rows, last := formedRows(t)
	m := NewMachine(MachineConfig{})
	data := encoded(t, Command{Op: OpCreateBucket, RequestID: testID(9), Bucket: "abc", BucketID: testID(10), Owner: "root"})
	if _, err := m.Apply(&failingRows{rows.clone(), 1}, 0, last+1, data); err == nil {
		t.Fatal("a failed write was not reported")
	}
	res, err := m.Apply(rows, 0, last+1, data)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := DecodeResult(res); err != nil || r.Code != 0 || r.Bucket == nil {
		t.Fatalf("the entry applied to good rows was answered %+v, %v", r, err)
	}
}

func TestDamagedRowsAreReportedAsCorrupt(t *testing.T) {
	for name, damage := range map[string]func(*memRows){
		"mark":        func(m *memRows) { m.rows[keyMark] = []byte("short") },
		"node":        func(m *memRows) { m.rows[numKey(rowNode, 1)] = []byte("{") },
		"lost pg":     func(m *memRows) { delete(m.rows, numKey(rowPG, 3)) },
		"unknown row": func(m *memRows) { m.rows["Z"] = []byte("{}") },
		"window":      func(m *memRows) { m.rows["q1"] = []byte("{}") },
	} {
		rows, _ := formedRows(t)
		damage(rows)
		if _, err := LoadView(rows); !oerr.IsCorrupt(err) {
			t.Errorf("%s: answered %v, expected corrupt", name, err)
		}
	}
}

func BenchmarkApplyCreateBucketAmong10000(b *testing.B) {
	rows, last := formedRows(b)
	m := NewMachine(MachineConfig{})
	n := 0
	create := func() {
		n++
		data, err := (&Command{Op: OpCreateBucket, RequestID: testID(1000 + n), Bucket: fmt.Sprintf("bucket-%d", n), BucketID: testID(n), Owner: "root"}).Encode()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Apply(rows, 0, last+uint64(n), data); err != nil {
			b.Fatal(err)
		}
	}
	for range 10000 {
		create()
	}
	for b.Loop() {
		create()
		m.Applied(0, last+uint64(n))
	}
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add(encoded(f, initCommand(4)))
	f.Add(encoded(f, Command{Op: OpAddNode, RequestID: testID(1), Node: testNode(1), Token: testToken(1)}))
	f.Add(encoded(f, Command{Op: OpSetReplicas, RequestID: testID(1), Group: 3, Replicas: []Replica{{ID: 1<<32 | 1, Node: 1, Drive: 1}}}))
	f.Add(encoded(f, Command{Op: OpBucketState, RequestID: testID(1), Bucket: "abc", BucketID: testID(2), State: 2, Attempt: 9}))
	f.Add([]byte(`{"op":"form","request_id":"00000000000000000000000000000001","profile":{"k":2,"m":2},"pg_count":-1}`))
	f.Add([]byte(`{"op":"add_drive","drive":null}x`))
	rows, last := formedRows(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCommand(data)
		if err == nil {
			again, err := DecodeCommand(encoded(t, *c))
			if err != nil || again.String() != c.String() {
				t.Fatalf("%q does not survive encoding: %v", data, err)
			}
		}
		m, into := NewMachine(MachineConfig{}), rows.clone()
		res, err := m.Apply(into, 0, last+1, data)
		if err != nil {
			t.Fatalf("apply stopped the replica: %v", err)
		}
		if _, err := DecodeResult(res); err != nil {
			t.Fatal(err)
		}
		v, err := LoadView(into)
		if err != nil {
			t.Fatalf("the rows do not load: %v", err)
		}
		if err := checkView(v); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzLoadRow(f *testing.F) {
	rows, _ := formedRows(f)
	for k, v := range rows.rows {
		f.Add([]byte(k), v)
	}
	f.Add([]byte{rowNode}, []byte("null"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := NewState()
		if err := s.loadRow(key, value); err != nil && !oerr.IsCorrupt(err) {
			t.Fatalf("a damaged row is reported as %v", err)
		}
	})
}
