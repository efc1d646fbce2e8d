package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// group is a group in memory that commands are sent to one by one.
type group struct {
	t     testing.TB
	m     *Machine
	store host.ReadWriter
	index uint64
	ids   int
}

var bucketA, bucketB = testID('b', 1), testID('b', 2)

func newGroup(t testing.TB, store host.ReadWriter) *group {
	g := &group{t: t, m: NewMachine(), store: store}
	g.must(&Command{Op: OpCreateSpan, Span: &Span{Bucket: bucketA, Generation: 7}})
	return g
}

func (g *group) fill(c *Command) *Command {
	if c.RequestID.IsZero() {
		g.ids++
		c.RequestID = testID('R', g.ids)
	}
	if c.Bucket.IsZero() {
		c.Bucket = bucketA
	}
	if c.Generation == 0 {
		c.Generation = 7
	}
	if c.Now == 0 {
		c.Now = 1000
	}
	return c
}

func (g *group) do(c *Command) Result {
	g.t.Helper()
	g.index++
	return mustApply(g.t, g.m, g.store, g.index, g.fill(c).Append(nil))
}

func (g *group) must(c *Command) Result {
	g.t.Helper()
	r := g.do(c)
	if r.Code != 0 {
		g.t.Fatalf("op %d: refused with kind %s: %s", c.Op, oerr.Kind(r.Code-1), r.Detail)
	}
	return r
}

func (g *group) refused(kind oerr.Kind, c *Command) {
	g.t.Helper()
	if r := g.do(c); r.Code != 1+uint8(kind) {
		g.t.Fatalf("op %d: code %d (%s), expected kind %s", c.Op, r.Code, r.Detail, kind)
	}
}

func (g *group) inline(key, body string) *Command {
	g.ids++
	return &Command{Op: OpPut, Key: key, Body: []byte(body), Version: &Version{ID: testID('V', g.ids), Size: int64(len(body)), ETag: body}}
}

func (g *group) blob(missing uint32) *Blob {
	g.ids++
	return &Blob{ID: testID('B', g.ids), Epoch: 1, K: 2, M: 2, CellSize: 4096, Size: 10000, Missing: missing, Digests: []uint64{1, 2, 3, 4}}
}

func (g *group) big(key string, x *Blob) *Command {
	g.ids++
	return &Command{Op: OpPut, Key: key, Epoch: 1, Version: &Version{ID: testID('V', g.ids), Size: x.Size, ETag: "e", Parts: []Part{{Size: x.Size, Blob: x}}}}
}

func TestStampPutsTheLeadersClockIn(t *testing.T) {
	m := NewMachine()
	for _, c := range oneOfEach() {
		got, err := DecodeCommand(m.Stamp(c.Append(nil), 424242))
		if err != nil || got.Now != 424242 {
			t.Errorf("op %d: now %d, %v, expected 424242", c.Op, got.Now, err)
		}
	}
}

func TestAnEntryOfANewerFormatStopsTheReplicaAndIsNeverProposed(t *testing.T) {
	newer := oneOfEach()[4].Append(nil)
	newer[0]++
	m := NewMachine()
	if _, err := m.Apply(newMemStore(), 1, 1, newer); err == nil {
		t.Error("applied an entry of a newer format")
	}
	for _, data := range [][]byte{newer, nil, {commandVersion}} {
		if r := mustApply(t, m, newMemStore(), 1, m.Stamp(data, 1)); r.Code != 1+uint8(oerr.InvalidArgument) {
			t.Errorf("stamped %x: code %d, expected InvalidArgument", data, r.Code)
		}
	}
}

func TestAppliedCallsTheHook(t *testing.T) {
	m := NewMachine()
	m.Applied(1, 5)
	var got uint64
	m.OnApplied = func(_ ident.Group, index uint64) { got = index }
	m.Applied(1, 6)
	if got != 6 {
		t.Errorf("hook got index %d, expected 6", got)
	}
}

func TestOneMachineServesManyGroupsAtOnce(t *testing.T) {
	m := NewMachine()
	var dumps [4]map[string]string
	var wg sync.WaitGroup
	for i := range dumps {
		wg.Go(func() {
			w, store := newWorld(5), newMemStore()
			for range 300 {
				c := w.next()
				if _, err := m.Apply(store, ident.Group(i), w.index, c.Append(nil)); err != nil {
					t.Error(err)
				}
				w.m.apply(c, w.index)
			}
			dumps[i] = store.dump()
		})
	}
	wg.Wait()
	for i := range dumps {
		if len(dumps[i]) == 0 || !maps.Equal(dumps[i], dumps[0]) {
			t.Errorf("group %d differs from group 0 after the same log", i)
		}
	}
}

func TestOfRacingCreatesExactlyOneWins(t *testing.T) {
	g := newGroup(t, newMemStore())
	won := 0
	for i := range 64 {
		c := g.inline("k", fmt.Sprint(i))
		c.Precondition.IfNoneMatchAny = true
		if r := g.do(c); r.Code == 0 {
			won++
		} else if r.Code != 1+uint8(oerr.PreconditionFailed) {
			t.Fatalf("code %d, expected PreconditionFailed", r.Code)
		}
	}
	if won != 1 {
		t.Errorf("%d of 64 won", won)
	}
}

func TestARetryGetsTheFirstResultAndChangesNothing(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	c := g.inline("k", "one")
	c.Precondition.IfNoneMatchAny = true
	first := g.must(c)
	before := store.dump()
	c.FirstIndex, c.Now = 1, 9999
	if again := g.must(c); again.Index != first.Index || again.Version != first.Version || again.ModTime != first.ModTime {
		t.Errorf("retry got %+v, expected %+v", again, first)
	}
	if !maps.Equal(before, store.dump()) {
		t.Error("a retry changed rows")
	}
	// A refusal stays a refusal, even when it would hold now.
	c2 := g.inline("k", "two")
	c2.Precondition.IfMatch = []string{"three"}
	g.refused(oerr.PreconditionFailed, c2)
	g.must(g.inline("k", "three"))
	g.refused(oerr.PreconditionFailed, c2)
}

func TestTheDedupWindowForgetsByWholeEpochs(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	g.index = 100
	c := g.inline("k", "one")
	first := g.must(c)
	count := func() (n int) {
		for k := range store.rows {
			if k[0] == groupDedup {
				n++
			}
		}
		return n
	}
	if n := count(); n != 2 {
		t.Fatalf("%d rows in the window, expected 2", n)
	}
	g.index = first.Index + 100_000 // the least that the window must cover
	c.FirstIndex = 100
	if r := g.must(c); r.Index != first.Index {
		t.Fatalf("retry 100,000 entries later was applied again at %d", r.Index)
	}
	g.index = 2*dedupEpoch - 2
	if r := g.must(c); r.Index != first.Index {
		t.Fatalf("retry in the next epoch was applied again at %d", r.Index)
	}
	g.index = 2 * dedupEpoch
	g.refused(oerr.OutcomeUnknown, c)
	g.must(g.inline("other", "x")) // its span trims
	if n := count(); n != 1 {
		t.Errorf("%d rows in the window, expected 1: the old epochs were not trimmed", n)
	}
	g.refused(oerr.OutcomeUnknown, c)
	fresh := g.inline("k", "new") // a try that began inside the window is applied
	fresh.FirstIndex = dedupEpoch
	g.must(fresh)
}

func TestSpansOfOneBucketDivideItsKeys(t *testing.T) {
	store := newMemStore()
	g := &group{t: t, m: NewMachine(), store: store}
	g.must(&Command{Op: OpCreateSpan, Span: &Span{Bucket: bucketA, End: "m", Generation: 7}})
	g.must(&Command{Op: OpCreateSpan, Key: "m", Span: &Span{Bucket: bucketA, Start: "m", End: "t", Generation: 8}})
	g.refused(oerr.InvalidArgument, &Command{Op: OpCreateSpan, Span: &Span{Bucket: bucketA, Start: "s", Generation: 7}})
	g.refused(oerr.StaleEpoch, &Command{Op: OpCreateSpan, Span: &Span{Bucket: bucketA, End: "m", Generation: 9}})
	g.must(&Command{Op: OpCreateSpan, Span: &Span{Bucket: bucketA, End: "m", Generation: 7}})
	g.must(g.inline("a", "1"))
	g.refused(oerr.StaleEpoch, g.inline("m", "2"))
	c := g.inline("m", "2")
	c.Generation = 8
	g.must(c)
	g.refused(oerr.NoSuchBucket, g.inline("t", "3"))
	for key, gen := range map[string]uint64{"a": 7, "m": 8} {
		if _, err := Ask(store, &Query{Op: QueryGet, Bucket: bucketA, Generation: gen, Key: key}); err != nil {
			t.Errorf("get %q: %v", key, err)
		}
		if _, err := Ask(store, &Query{Op: QueryGet, Bucket: bucketA, Generation: gen + 1, Key: key}); !oerr.Is(err, oerr.StaleEpoch) {
			t.Errorf("get %q of another generation: %v, expected StaleEpoch", key, err)
		}
	}
	if _, err := Ask(store, &Query{Op: QueryGet, Bucket: bucketB, Generation: 7, Key: "a"}); !oerr.Is(err, oerr.NoSuchBucket) {
		t.Errorf("get in an unknown bucket: %v, expected NoSuchBucket", err)
	}
	a, err := Ask(store, &Query{Op: QueryList, Bucket: bucketA, Generation: 7, Max: 10})
	if err != nil || len(a.Entries) != 1 || a.Entries[0].Key != "a" {
		t.Errorf("list of the first span: %+v, %v, expected key a", a, err)
	}
}

func TestOnlyCommandsThatPlaceShardsAreHeldToTheMinimumEpoch(t *testing.T) {
	g := newGroup(t, newMemStore())
	g.must(&Command{Op: OpSetMinEpoch, MinEpoch: 5})
	g.must(&Command{Op: OpSetMinEpoch, MinEpoch: 3}) // never goes back
	g.must(g.inline("k", "body"))
	stale := g.big("k", g.blob(0))
	g.refused(oerr.StaleEpoch, stale)
	stale.Epoch = 5 // the request says 5, the blob was placed on 1
	g.refused(oerr.StaleEpoch, stale)
	stale.Version.Parts[0].Blob.Epoch = 6
	g.must(stale)
}

func TestACommitOfAnAbandonedBlobIsRefusedForEver(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	known, unknown, live := g.blob(3), g.blob(0), g.blob(0)
	g.must(g.big("k", live))
	known.Missing = 7 // of a put that failed more shards may be missing than a commit allows
	r := g.must(&Command{Op: OpAbandon, Key: "k", Blobs: []ident.ID{known.ID, unknown.ID, live.ID}, Abandoned: []Blob{*known}})
	if r.Live[0] || r.Live[1] || !r.Live[2] {
		t.Fatalf("live %v, expected only the last", r.Live)
	}
	a, err := Ask(store, &Query{Op: QueryGarbage})
	if err != nil || len(a.Garbage) != 2 || a.Garbage[0].Blob.K != 2 || a.Garbage[1].Blob.K != 0 {
		t.Fatalf("garbage %+v, %v, expected one row with its placement and one without", a.Garbage, err)
	}
	known.Missing = 0
	g.refused(oerr.Abandoned, g.big("k", known))
	g.must(&Command{Op: OpGarbageDone, Blobs: []ident.ID{known.ID, unknown.ID}})
	g.refused(oerr.Abandoned, g.big("k", known))
	g.must(&Command{Op: OpCreateUpload, Key: "k", Upload: &Upload{ID: testID('U', 1)}})
	g.refused(oerr.Abandoned, &Command{Op: OpPutPart, Key: "k", Epoch: 1, UploadID: testID('U', 1),
		Part: &Part{Number: 1, Size: unknown.Size, Blob: unknown}})
}

func TestALostShardComesBackWhenAnotherLands(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	x := g.blob(3)
	g.must(g.big("k", x))
	g.must(&Command{Op: OpRepairDone, Repairs: []RepairOutcome{{x.ID, 0, RepairLost}, {x.ID, 1, RepairSuperseded}, {x.ID, 1, RepairAbsent}}})
	count := func(pending, lost int64) {
		t.Helper()
		if a, err := Ask(store, &Query{Op: QueryRepairCount}); err != nil || a.Pending != pending || a.Lost != lost {
			t.Fatalf("%d pending and %d lost, %v, expected %d and %d", a.Pending, a.Lost, err, pending, lost)
		}
	}
	count(1, 1) // superseded and absent are not believed of a blob that is referenced
	g.must(&Command{Op: OpLanded, Landings: []Landing{{Key: "k", Blob: x.ID, Index: 1, Digest: 99}}})
	count(1, 1) // another digest than committed
	g.must(&Command{Op: OpLanded, Landings: []Landing{{Key: "k", Blob: x.ID, Index: 1, Digest: 2}}})
	count(1, 0)
	a, err := Ask(store, &Query{Op: QueryRepair})
	if err != nil || len(a.Repairs) != 1 || a.Repairs[0].Index != 0 || a.Repairs[0].Priority != 1 || a.Repairs[0].Blob.Missing != 1 {
		t.Fatalf("%+v, %v, expected shard 0 at priority 1", a.Repairs, err)
	}
	g.must(g.inline("k", "new"))
	count(0, 0)
}

func TestAListingSeeksPastCommonPrefixes(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	for i := range 3000 {
		g.must(g.inline(fmt.Sprintf("dir%d/%04d", i%3, i), "x"))
	}
	store.moves = 0
	a, err := Ask(store, &Query{Op: QueryList, Bucket: bucketA, Generation: 7, Delimiter: "/", Max: 1000})
	if err != nil || len(a.Prefixes) != 3 || a.Truncated {
		t.Fatalf("%+v, %v, expected three prefixes", a, err)
	}
	if store.moves > 10 {
		t.Errorf("%d moves over 3000 keys under 3 prefixes", store.moves)
	}
}

func TestDeletesLeaveNoRowsInTheWayOfListings(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	for i := range 20 {
		for range 50 {
			g.must(g.inline(fmt.Sprint("k", i), "x"))
		}
	}
	store.moves = 0
	if a, err := Ask(store, &Query{Op: QueryList, Bucket: bucketA, Generation: 7, Max: 1000}); err != nil || len(a.Entries) != 20 {
		t.Fatalf("%d entries, %v, expected 20", len(a.Entries), err)
	}
	if store.moves > 25 {
		t.Errorf("%d moves for 20 keys written 50 times each", store.moves)
	}
}

func TestSealingABucketWithVeryManyPartsTakesSeveralEntries(t *testing.T) {
	store := newPebbleStore(t)
	g := newGroup(t, store)
	parts := maxSealParts + 50
	for n := 0; n < parts; {
		id := testID('U', n)
		g.must(&Command{Op: OpCreateUpload, Key: "k", Upload: &Upload{ID: id}})
		for i := 1; i <= MaxParts && n < parts; i++ {
			g.must(&Command{Op: OpPutPart, Key: "k", Epoch: 1, UploadID: id, Part: &Part{Number: uint16(i), Size: 10000, ETag: "e", Blob: g.blob(0)}})
			n++
		}
	}
	g.refused(oerr.Busy, &Command{Op: OpSealSpan})
	g.refused(oerr.NoSuchBucket, g.inline("k", "x"))
	g.must(&Command{Op: OpSealSpan})
	g.must(&Command{Op: OpDropSpan})
	for left := parts; left > 0; {
		a, err := Ask(store, &Query{Op: QueryGarbage})
		if err != nil {
			t.Fatal(err)
		}
		c := &Command{Op: OpGarbageDone}
		for _, row := range a.Garbage {
			c.Blobs = append(c.Blobs, row.Blob.ID)
		}
		if left -= len(c.Blobs); len(c.Blobs) == 0 || a.Truncated != (left > 0) {
			t.Fatalf("%d rows, truncated %t, %d left", len(c.Blobs), a.Truncated, left)
		}
		g.must(c)
	}
	if rows := store.dump(t); len(rows) > parts+100 {
		t.Errorf("%d rows left", len(rows))
	} else {
		for k := range rows {
			if k[0] != groupDedup {
				t.Errorf("row %x is left", k)
			}
		}
	}
}

// failing fails the n-th call to the store.
type failing struct {
	*memStore
	left int
}

var errStore = errors.New("store failed")

func (f *failing) fail() bool { f.left--; return f.left == 0 }

func (f *failing) Get(key []byte) ([]byte, bool, error) {
	if f.fail() {
		return nil, false, errStore
	}
	return f.memStore.Get(key)
}

func (f *failing) Set(key, value []byte) error {
	if f.fail() {
		return errStore
	}
	return f.memStore.Set(key, value)
}

func (f *failing) Delete(key []byte) error {
	if f.fail() {
		return errStore
	}
	return f.memStore.Delete(key)
}

func (f *failing) Iter(l, u []byte) (host.Iterator, error) {
	if f.fail() {
		return nil, errStore
	}
	return f.memStore.Iter(l, u)
}

func TestAStoreThatFailsIsNeverTakenForAnAbsentRow(t *testing.T) {
	w, store := newWorld(77), newMemStore()
	m := NewMachine()
	failures := 0
	for i := range 400 {
		c := w.next()
		for n := 1; i%7 == 0; n++ {
			f := &failing{memStore: &memStore{rows: map[string][]byte{}}, left: n}
			for _, k := range store.keys {
				f.memStore.keys = append(f.memStore.keys, k)
				f.memStore.rows[k] = bytes.Clone(store.rows[k])
			}
			_, err := m.Apply(f, 1, w.index, c.Append(nil))
			if f.left > 0 {
				if err != nil {
					t.Fatalf("op %d without a failure: %v", c.Op, err)
				}
				break
			}
			if failures++; !errors.Is(err, errStore) {
				t.Fatalf("op %d, call %d failed: %v, expected the store's error", c.Op, n, err)
			}
		}
		mustApply(t, m, store, w.index, c.Append(nil))
		w.m.apply(c, w.index)
	}
	for op := QueryGet; op <= QueryRepairCount; op++ {
		for n := 1; ; n++ {
			f := &failing{memStore: store, left: n}
			_, err := Ask(f, &Query{Op: op, Bucket: w.buckets[0], Generation: 7, Key: "a", Max: 10, Blobs: []ident.ID{{1}}})
			if f.left > 0 {
				break
			}
			if failures++; !errors.Is(err, errStore) {
				t.Fatalf("query %d, call %d failed: %v, expected the store's error", op, n, err)
			}
		}
	}
	if failures < 300 {
		t.Errorf("only %d failures were tried", failures)
	}
}

func TestACorruptRowStopsApplyAndFailsQueries(t *testing.T) {
	store := newMemStore()
	g := newGroup(t, store)
	x := g.blob(1)
	g.must(g.big("k", x))
	k := keys{prefix: spanPrefix(bucketA, "")}
	rows := map[string][]byte{
		"l": bytes.Clone(k.current("k")), "v": bytes.Clone(k.version("k", 1)),
		"b": bytes.Clone(k.byID(tagBlob, x.ID)), "r": bytes.Clone(k.repair(1, x.ID, 0)), "s": spanKey(bucketA, ""),
	}
	for name, key := range rows {
		good := bytes.Clone(store.rows[string(key)])
		if good == nil {
			t.Fatalf("no %s row", name)
		}
		if err := store.Set(key, append(bytes.Clone(good), 0)); err != nil {
			t.Fatal(err)
		}
		c := g.fill(&Command{Op: OpLanded, Landings: []Landing{{Key: "k", Blob: x.ID, Index: 0, Digest: 1}}})
		if name == "l" {
			c = g.fill(g.inline("k", "new"))
		}
		if _, err := g.m.Apply(store, 1, 100, c.Append(nil)); !oerr.IsCorrupt(err) {
			t.Errorf("apply on a bad %s row: %v, expected Corrupt", name, err)
		}
		q := &Query{Op: QueryRepair}
		if name == "l" {
			q = &Query{Op: QueryGet, Bucket: bucketA, Generation: 7, Key: "k"}
		}
		if _, err := Ask(store, q); !oerr.IsCorrupt(err) {
			t.Errorf("query on a bad %s row: %v, expected Corrupt", name, err)
		}
		if err := store.Set(key, good); err != nil {
			t.Fatal(err)
		}
	}
}
