package metadata

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// world generates commands that have a fair chance of meeting each other: few keys, recycled blobs, retries.
type world struct {
	r       *rand.Rand
	m       *model
	ids     int
	index   uint64
	now     int64
	buckets []ident.ID
	blobs   []Blob                // every blob ever offered
	homes   map[ident.ID]ident.ID // the bucket of each: a gateway never offers one to two buckets
	sent    []*Command
	queue   []*Command // to be sent next, in order
}

var testKeys = [...]string{"a", "a/", "a/b", "a/b/c", "a/b\x00", "a/b\x00\xff", "a0", "b\xff/x", "b\xff\xff", "\x00", "\x00\x01", "c/1", "c/2", "d"}

func newWorld(seed uint64) *world {
	return &world{r: rand.New(rand.NewPCG(seed, 1)), m: newModel(), index: 10, now: 1_700_000_000_000,
		homes: map[ident.ID]ident.ID{}}
}

func (w *world) id(kind byte) ident.ID   { w.ids++; return testID(kind, w.ids) }
func (w *world) key() string             { return testKeys[w.r.IntN(len(testKeys))] }
func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }
func (w *world) etag() string            { return fmt.Sprintf("%032x", w.r.IntN(4)) }

func (w *world) blob(b ident.ID) *Blob {
	if len(w.blobs) > 0 && w.chance(10) { // one that was used, dropped or abandoned before
		if x := w.blobs[w.r.IntN(len(w.blobs))]; w.homes[x.ID] == b {
			return &x
		}
	}
	shapes := [...][2]uint8{{1, 0}, {1, 1}, {1, 2}, {2, 2}, {4, 2}, {8, 4}}
	s := shapes[w.r.IntN(len(shapes))]
	x := Blob{ID: w.id('B'), PG: ident.PG(w.r.IntN(100)), Epoch: uint64(w.r.IntN(4)) + 3, K: s[0], M: s[1], CellSize: 64 << 10,
		Size: int64(w.r.IntN(1<<20)) + 1, WriterNode: 1, WriterStart: testID('S', 1), WriterPut: uint64(w.ids)}
	for range s[0] + s[1] {
		x.Digests = append(x.Digests, w.r.Uint64())
	}
	if w.chance(40) {
		for range w.r.IntN(int(x.M) + 1) {
			x.Missing |= 1 << w.r.IntN(len(x.Digests))
		}
	}
	w.blobs = append(w.blobs, x)
	w.homes[x.ID] = b
	return &x
}

func (w *world) anyBlob() Blob {
	if len(w.blobs) == 0 || w.chance(5) {
		return Blob{ID: w.id('B'), K: 1, Size: 1, Digests: []uint64{1}}
	}
	return w.blobs[w.r.IntN(len(w.blobs))]
}

// heldBlob is most of the time one that is referenced now.
func (w *world) heldBlob(b ident.ID) Blob {
	if s := w.m.spans[b]; s != nil && w.chance(80) {
		if held := s.holders(); len(held) > 0 {
			ids := slices.SortedFunc(maps.Keys(held), ident.ID.Compare)
			return *held[ids[w.r.IntN(len(ids))]].part.Blob
		}
	}
	return w.anyBlob()
}

func (w *world) checksums() []Checksum {
	if w.chance(50) {
		return nil
	}
	return []Checksum{{Algorithm: uint8(w.r.IntN(5)) + 1, Composite: w.chance(50), Value: []byte{1, 2, 3, byte(w.r.IntN(256))}}}
}

func (w *world) precondition() (p Precondition) {
	switch w.r.IntN(12) {
	case 0:
		p.IfNoneMatchAny = true
	case 1:
		p.IfMatch = []string{w.etag(), w.etag()}
	case 2:
		p.IfMatch = []string{"*"}
	case 3:
		p.IfNoneMatch = []string{w.etag()}
	}
	return p
}

// next returns the next command, and moves index and clock.
func (w *world) next() *Command {
	w.index += 1 + uint64(w.r.IntN(3))
	if w.r.IntN(500) == 0 {
		w.index += uint64(w.r.IntN(dedupEpoch + 1000))
	}
	w.now += int64(w.r.IntN(2000)) - 500
	if w.r.IntN(200) == 0 {
		w.now += 13 * 3600 * 1000
	}
	c := w.pick()
	if len(w.sent) < 500 {
		w.sent = append(w.sent, c)
	} else {
		w.sent[w.r.IntN(500)] = c
	}
	c.Now = w.now
	return c
}

func (w *world) pick() *Command {
	if len(w.queue) > 0 {
		c := w.queue[0]
		w.queue = w.queue[1:]
		return c
	}
	if len(w.sent) > 0 && w.chance(4) { // a retry
		c := *w.sent[w.r.IntN(len(w.sent))]
		c.FirstIndex = max(1, w.index-uint64(w.r.IntN(3*dedupEpoch))%w.index)
		return &c
	}
	if len(w.buckets) == 0 || w.chance(1) && len(w.buckets) < 3 {
		b := w.id('b')
		w.buckets = append(w.buckets, b)
		return w.with(b, Command{Op: OpCreateSpan, Span: &Span{Bucket: b, Generation: 7, MinEpoch: 2}})
	}
	b := w.buckets[w.r.IntN(len(w.buckets))]
	if w.r.IntN(150) == 0 {
		w.retire(b)
	}
	c := w.with(b, w.op(b))
	if w.chance(1) {
		c.Generation++
	}
	return c
}

func (w *world) with(b ident.ID, c Command) *Command {
	c.RequestID, c.Bucket, c.Generation = w.id('R'), b, 7
	if (c.Op == OpRepairDone || c.Op == OpGarbageDone) && w.chance(50) {
		c.Bucket = ident.ID{}
	}
	if c.Epoch == 0 {
		c.Epoch = uint64(w.r.IntN(4)) + 3
	}
	return &c
}

// retire deletes a bucket: objects first, most of the time, then seal and drop.
func (w *world) retire(b ident.ID) {
	if w.chance(80) {
		for _, k := range testKeys {
			w.queue = append(w.queue, w.with(b, Command{Op: OpDelete, Key: k}))
		}
	}
	w.queue = append(w.queue, w.with(b, Command{Op: OpSealSpan}), w.with(b, Command{Op: OpDropSpan}))
	if w.chance(50) {
		w.queue = append(w.queue, w.with(b, Command{Op: OpDropSpan}))
	}
	if s := w.m.spans[b]; s != nil && w.chance(70) {
		w.buckets = slices.DeleteFunc(w.buckets, func(x ident.ID) bool { return x == b })
	}
}

func (w *world) someUpload(b ident.ID) (key string, id ident.ID, parts []Part) {
	s := w.m.spans[b]
	if s == nil || w.chance(5) || len(s.uploads)+len(s.done) == 0 {
		return w.key(), testID('U', w.r.IntN(w.ids+1)), nil
	}
	ids := slices.SortedFunc(maps.Keys(s.uploads), ident.ID.Compare)
	if len(ids) == 0 || w.chance(10) {
		ids = slices.AppendSeq(ids, maps.Keys(s.done))
		slices.SortFunc(ids, ident.ID.Compare)
	}
	id = ids[w.r.IntN(len(ids))]
	if u := s.uploads[id]; u != nil {
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			parts = append(parts, *u.parts[n])
		}
		return u.u.Key, id, parts
	}
	return s.done[id].Key, id, nil
}

func (w *world) op(b ident.ID) Command {
	switch n := w.r.IntN(100); {
	case n < 30:
		return w.putOp(b)
	case n < 40:
		return Command{Op: OpDelete, Key: w.key(), Precondition: w.precondition()}
	case n < 46:
		u := &Upload{ID: w.id('U'), Headers: []Pair{{"Content-Type", "x/y"}}, Algorithm: uint8(w.r.IntN(6)), Composite: w.chance(50)}
		key := w.key()
		if w.chance(15) { // more parts than a v/ row holds
			for i := range chunkParts + 1 + w.r.IntN(2*chunkParts) {
				p := w.part(b)
				p.Number = uint16(i + 1)
				w.queue = append(w.queue, w.with(b, Command{Op: OpPutPart, Key: key, UploadID: u.ID, Part: p}))
			}
		}
		return Command{Op: OpCreateUpload, Key: key, Upload: u}
	case n < 62:
		key, id, _ := w.someUpload(b)
		return Command{Op: OpPutPart, Key: key, UploadID: id, Part: w.part(b)}
	case n < 68:
		return w.completeOp(b)
	case n < 70:
		key, id, _ := w.someUpload(b)
		return Command{Op: OpAbortUpload, Key: key, UploadID: id}
	case n < 78:
		var l []Landing
		for range 1 + w.r.IntN(4) {
			x := w.heldBlob(b)
			i := w.r.IntN(len(x.Digests))
			if x.Missing != 0 && w.chance(70) {
				i = bits.TrailingZeros32(x.Missing)
			}
			d := x.Digests[i]
			if w.chance(10) {
				d++
			}
			l = append(l, Landing{Key: w.keyOf(b, x.ID), Blob: x.ID, Index: uint8(i), Drive: 3, Incarnation: 1, Digest: d})
		}
		return Command{Op: OpLanded, Landings: l}
	case n < 85:
		var l []Report
		for range 1 + w.r.IntN(4) {
			x := w.heldBlob(b)
			l = append(l, Report{Key: w.keyOf(b, x.ID), Blob: x.ID, Index: uint8(w.r.IntN(len(x.Digests) + 1))})
		}
		return Command{Op: OpReportBad, Reports: l}
	case n < 89:
		var l []RepairOutcome
		for range 1 + w.r.IntN(4) {
			o := RepairOutcome{Blob: w.anyBlob().ID, State: RepairState(1 + w.r.IntN(3))}
			if rows := w.m.repairRows(); len(rows) > 0 {
				row := rows[w.r.IntN(len(rows))]
				o.Blob, o.Index = row.Blob.ID, row.Index
			}
			l = append(l, o)
		}
		return Command{Op: OpRepairDone, Repairs: l}
	case n < 94:
		var l []ident.ID
		for range 1 + w.r.IntN(8) {
			l = append(l, w.anyBlob().ID)
		}
		return Command{Op: OpGarbageDone, Blobs: l}
	case n < 98:
		c := Command{Op: OpAbandon, Key: w.key()}
		for range 1 + w.r.IntN(3) {
			x := w.anyBlob()
			if slices.Contains(c.Blobs, x.ID) || w.homes[x.ID] != b && !w.homes[x.ID].IsZero() {
				continue
			}
			c.Blobs = append(c.Blobs, x.ID)
			if w.chance(50) {
				c.Abandoned = append(c.Abandoned, x)
			}
		}
		if len(c.Blobs) == 0 {
			c.Blobs = []ident.ID{w.id('B')}
		}
		return c
	}
	return Command{Op: OpSetMinEpoch, MinEpoch: uint64(w.r.IntN(5))}
}

func (w *world) keyOf(b, blob ident.ID) string {
	if s := w.m.spans[b]; s != nil && w.chance(95) {
		if h, ok := s.holders()[blob]; ok {
			return h.key
		}
	}
	return w.key()
}

func (w *world) putOp(b ident.ID) Command {
	c := Command{Op: OpPut, Key: w.key(), Precondition: w.precondition()}
	c.Version = &Version{ID: w.id('V'), ETag: w.etag(), Checksums: w.checksums(), Headers: []Pair{{"x-amz-meta-n", fmt.Sprint(w.ids)}}}
	switch w.r.IntN(5) {
	case 0: // empty
	case 1, 2:
		c.Body = make([]byte, 1+w.r.IntN(100))
		for i := range c.Body {
			c.Body[i] = byte(w.r.IntN(256))
		}
		c.Version.Size = int64(len(c.Body))
	default:
		x := w.blob(b)
		c.Version.Size = x.Size
		c.Version.Parts = []Part{{Size: x.Size, Blob: x}}
	}
	return c
}

func (w *world) part(b ident.ID) *Part {
	p := &Part{Number: uint16(1 + w.r.IntN(6)), ETag: w.etag()}
	if w.chance(90) {
		p.Blob = w.blob(b)
		p.Size = p.Blob.Size
	}
	if w.chance(30) {
		p.Checksum = &Checksum{Algorithm: 2, Value: []byte{byte(w.r.IntN(3)), 9}}
	}
	return p
}

func (w *world) completeOp(b ident.ID) Command {
	key, id, parts := w.someUpload(b)
	c := Command{Op: OpCompleteUpload, Key: key, UploadID: id, Version: &Version{ID: w.id('V')}, ETag: w.etag() + "-2",
		Checksums: w.checksums(), Precondition: w.precondition()}
	if w.chance(20) {
		c.MinPartSize = 1 << 18
	}
	for _, p := range parts {
		if len(parts) > 6 && w.chance(2) || len(parts) <= 6 && w.chance(20) {
			continue
		}
		e := CompletePart{Number: p.Number, ETag: p.ETag}
		if p.Checksum != nil && w.chance(50) {
			e.Checksum = p.Checksum.Value
		}
		if w.r.IntN(200) == 0 {
			e.ETag = "other"
		}
		if w.r.IntN(200) == 0 {
			e.Checksum = []byte("other")
		}
		c.Complete = append(c.Complete, e)
	}
	if len(c.Complete) > 1 && w.chance(4) {
		c.Complete[0], c.Complete[1] = c.Complete[1], c.Complete[0]
	}
	if len(c.Complete) == 0 {
		c.Complete = []CompletePart{{Number: 1, ETag: "x"}}
	}
	return c
}

func mustApply(t testing.TB, m *Machine, rw host.ReadWriter, index uint64, data []byte) Result {
	t.Helper()
	out, err := m.Apply(rw, 1, index, data)
	if err != nil {
		t.Fatalf("apply at %d: %v", index, err)
	}
	res, err := DecodeResult(out)
	if err != nil {
		t.Fatalf("result at %d: %v", index, err)
	}
	return *res
}

func TestApplyDoesWhatTheModelDoes(t *testing.T) {
	const ops = 1400
	seen := map[string]int{}
	for seed := uint64(1); seed <= 16; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w, store, replica := newWorld(seed), newMemStore(), newMemStore()
			a, b := NewMachine(), NewMachine()
			for i := range ops {
				c := w.next()
				data := a.Stamp(c.Append(nil), c.Now)
				got := mustApply(t, a, store, w.index, data)
				mustApply(t, b, replica, w.index, data)
				want := w.m.apply(c, w.index)
				got.Detail = ""
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d op %d (%d): result %+v, expected %+v\ncommand %+v", seed, i, c.Op, got, want, c)
				}
				seen[fmt.Sprintf("%d/%d", c.Op, got.Code)]++
				if i%25 == 0 || i == ops-1 {
					compare(t, w, store)
				}
				if i%100 == 0 || i == ops-1 {
					compareGroup(t, w, store)
				}
			}
			if !maps.Equal(store.dump(), replica.dump()) {
				t.Fatalf("seed %d: two replicas of one log differ", seed)
			}
		})
	}
	// A random test that never reaches a path proves nothing about it.
	code := func(k oerr.Kind) uint8 { return 1 + uint8(k) }
	for _, want := range []string{
		"1/0", "2/0", fmt.Sprintf("2/%d", code(oerr.BucketNotEmpty)), "3/0", "4/0", "5/0", fmt.Sprintf("5/%d", code(oerr.Abandoned)),
		fmt.Sprintf("5/%d", code(oerr.Exists)), fmt.Sprintf("5/%d", code(oerr.StaleEpoch)), fmt.Sprintf("5/%d", code(oerr.NoSuchKey)),
		fmt.Sprintf("5/%d", code(oerr.PreconditionFailed)), fmt.Sprintf("5/%d", code(oerr.OutcomeUnknown)),
		fmt.Sprintf("5/%d", code(oerr.NoSuchBucket)), "6/0", fmt.Sprintf("6/%d", code(oerr.NoSuchKey)), "7/0", "8/0",
		fmt.Sprintf("8/%d", code(oerr.NoSuchUpload)), "9/0", fmt.Sprintf("9/%d", code(oerr.InvalidPart)),
		fmt.Sprintf("9/%d", code(oerr.InvalidPartOrder)), fmt.Sprintf("9/%d", code(oerr.EntityTooSmall)),
		fmt.Sprintf("9/%d", code(oerr.PreconditionFailed)), "10/0", "11/0", "12/0", "13/0", "14/0", "15/0",
	} {
		if seen[want] == 0 {
			t.Errorf("no command had op/code %s", want)
		}
	}
}

func TestPebbleAndMemoryHoldTheSameRows(t *testing.T) {
	for _, seed := range []uint64{101, 102} {
		w, mem, peb := newWorld(seed), newMemStore(), newPebbleStore(t)
		m := NewMachine()
		for i := range 1500 {
			c := w.next()
			data := c.Append(nil)
			a, b := mustApply(t, m, mem, w.index, data), mustApply(t, m, peb, w.index, data)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d op %d: %+v in memory, %+v on pebble", seed, i, a, b)
			}
			w.m.apply(c, w.index)
			if i%100 == 99 {
				peb.commit(t)
				compare(t, w, pebbleView{peb.db})
				compareGroup(t, w, pebbleView{peb.db})
			}
		}
		if !maps.Equal(mem.dump(), peb.dump(t)) {
			t.Fatalf("seed %d: rows differ between memory and pebble", seed)
		}
	}
}
