package metadata

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// compare asks about every span and expects what the model has, then checks the invariants of the group's rows.
func compare(t *testing.T, w *world, r host.Reader) {
	t.Helper()
	for _, b := range slices.SortedFunc(maps.Keys(w.m.spans), ident.ID.Compare) {
		s := w.m.spans[b]
		if s.span.Sealed {
			_, err := Ask(r, &Query{Op: QueryList, Bucket: b, Generation: 7, Max: 1})
			if !oerr.Is(err, oerr.NoSuchBucket) {
				t.Fatalf("list of a sealed span: %v, expected NoSuchBucket", err)
			}
			continue
		}
		compareObjects(t, w, r, s)
		compareUploads(t, r, s)
		for range 4 {
			compareList(t, w.r, r, s)
		}
	}
	checkRows(t, w, r)
}

func compareObjects(t *testing.T, w *world, r host.Reader, s *modelSpan) {
	t.Helper()
	for _, key := range testKeys {
		a, err := Ask(r, &Query{Op: QueryGet, Bucket: s.span.Bucket, Generation: 7, Key: key, WithBody: true})
		o := s.objects[key]
		if o == nil {
			if !oerr.Is(err, oerr.NoSuchKey) {
				t.Fatalf("get %q: %v, expected NoSuchKey", key, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("get %q: %v", key, err)
		}
		if !reflect.DeepEqual(a.Version, &o.v) || !bytes.Equal(a.Body, o.body) {
			t.Fatalf("get %q: %+v, expected %+v", key, a.Version, &o.v)
		}
	}
	held := s.holders()
	q := &Query{Op: QueryReferenced, Bucket: s.span.Bucket, Generation: 7}
	for range 20 {
		q.Blobs = append(q.Blobs, w.anyBlob().ID)
	}
	a, err := Ask(r, q)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range q.Blobs {
		if _, want := held[id]; a.Referenced[i] != want {
			t.Fatalf("referenced %s: %t, expected %t", id, a.Referenced[i], want)
		}
	}
}

func compareUploads(t *testing.T, r host.Reader, s *modelSpan) {
	t.Helper()
	got := map[ident.ID]Upload{}
	q := &Query{Op: QueryUploads, Bucket: s.span.Bucket, Generation: 7, Max: 3}
	var last Upload
	for {
		a := both(t, r, q)
		for _, u := range a.Uploads {
			if u.Key < last.Key || u.Key == last.Key && u.ID.Compare(last.ID) <= 0 {
				t.Fatalf("uploads out of order: %q %s after %q %s", u.Key, u.ID, last.Key, last.ID)
			}
			last = u
			got[u.ID] = u
		}
		if !a.Truncated {
			break
		}
		q.After, q.AfterUpload = last.Key, last.ID
	}
	if len(got) != len(s.uploads) {
		t.Fatalf("read %d open uploads, expected %d", len(got), len(s.uploads))
	}
	for id, u := range s.uploads {
		if !reflect.DeepEqual(got[id], u.u) {
			t.Fatalf("upload %+v, expected %+v", got[id], u.u)
		}
		var parts []Part
		for after := uint16(0); ; {
			a := both(t, r, &Query{Op: QueryParts, Bucket: s.span.Bucket, Generation: 7, Key: u.u.Key, UploadID: id, AfterPart: after, Max: 4})
			if parts = append(parts, a.Parts...); !a.Truncated {
				break
			}
			after = a.Parts[len(a.Parts)-1].Number
		}
		var want []Part
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			want = append(want, *u.parts[n])
		}
		if !reflect.DeepEqual(parts, want) {
			t.Fatalf("parts of %s: %+v, expected %+v", id, parts, want)
		}
	}
	for id, d := range s.done {
		a := both(t, r, &Query{Op: QueryUpload, Bucket: s.span.Bucket, Generation: 7, Key: d.Key, UploadID: id})
		if !reflect.DeepEqual(a.Upload, d) {
			t.Fatalf("completed upload %+v, expected %+v", a.Upload, d)
		}
	}
}

// both asks directly and by way of the encoding, and expects the same answer.
func both(t *testing.T, r host.Reader, q *Query) *Answer {
	t.Helper()
	a, err := Ask(r, q)
	if err != nil {
		t.Fatalf("query %+v: %v", q, err)
	}
	b, err := AskEncoded(r, q, nil)
	if err != nil {
		t.Fatalf("encoded query %+v: %v", q, err)
	}
	c, err := DecodeAnswer(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, c) {
		t.Fatalf("query %+v: %+v directly, %+v encoded", q, a, c)
	}
	return a
}

func compareList(t *testing.T, rnd *rand.Rand, r host.Reader, s *modelSpan) {
	t.Helper()
	prefixes := []string{"", "", "a", "a/", "a/b", "b\xff", "\x00", "zz"}
	delimiters := []string{"", "/", "/", "b", "\xff", "\x00"}
	q := &Query{Op: QueryList, Bucket: s.span.Bucket, Generation: 7, Prefix: prefixes[rnd.IntN(len(prefixes))],
		Delimiter: delimiters[rnd.IntN(len(delimiters))], Max: rnd.IntN(6)}
	if rnd.IntN(2) == 0 {
		q.After = testKeys[rnd.IntN(len(testKeys))]
	}
	for {
		got, want := both(t, r, q), s.listing(q)
		if !reflect.DeepEqual(got, &want) {
			t.Fatalf("list %+v: %+v, expected %+v", q, got, &want)
		}
		if !got.Truncated {
			return
		}
		q.After = got.Next
	}
}

// compareGroup asks what spans all spans.
func compareGroup(t *testing.T, w *world, r host.Reader) {
	t.Helper()
	var repairs []RepairRow
	var garbage []GarbageRow
	var blobs []BlobRef
	for _, op := range []QueryOp{QueryRepair, QueryGarbage, QueryBlobs} {
		q := &Query{Op: op, Max: 7}
		for {
			a := both(t, r, q)
			repairs, garbage, blobs = append(repairs, a.Repairs...), append(garbage, a.Garbage...), append(blobs, a.Blobs...)
			if !a.Truncated {
				break
			}
			q.After = a.Next
		}
	}
	if want := w.m.repairRows(); !reflect.DeepEqual(repairs, want) {
		t.Fatalf("repair rows %+v, expected %+v", repairs, want)
	}
	pending, lost, wantGarbage, wantBlobs := int64(0), int64(0), 0, 0
	for _, row := range repairs {
		if row.Lost {
			lost++
		} else {
			pending++
		}
	}
	a := both(t, r, &Query{Op: QueryRepairCount})
	if a.Pending != pending || a.Lost != lost {
		t.Fatalf("counted %d pending and %d lost, expected %d and %d", a.Pending, a.Lost, pending, lost)
	}
	holders := map[ident.ID]map[ident.ID]holder{}
	for b, s := range w.m.spans {
		holders[b] = s.holders()
		wantGarbage += len(s.garbage)
		wantBlobs += len(holders[b])
	}
	if len(garbage) != wantGarbage || len(blobs) != wantBlobs {
		t.Fatalf("read %d g rows and %d references, expected %d and %d", len(garbage), len(blobs), wantGarbage, wantBlobs)
	}
	for _, g := range garbage {
		if want := w.m.spans[g.Bucket].garbage[g.Blob.ID]; !reflect.DeepEqual(g, want) {
			t.Fatalf("g row %+v, expected %+v", g, want)
		}
	}
	for _, b := range blobs {
		h, ok := holders[b.Bucket][b.Blob.ID]
		want := BlobRef{Bucket: b.Bucket, Key: h.key, Version: h.version, UploadID: h.upload}
		if ok {
			want.Blob, want.Part = *h.part.Blob, h.part.Number
		}
		if !ok || !reflect.DeepEqual(b, want) {
			t.Fatalf("reference %+v, expected %+v", b, want)
		}
	}
	if spans := both(t, r, &Query{Op: QuerySpans}).Spans; len(spans) != len(w.m.spans) {
		t.Fatalf("read %d spans, expected %d", len(spans), len(w.m.spans))
	} else {
		for _, sp := range spans {
			if sp != w.m.spans[sp.Bucket].span {
				t.Fatalf("span %+v, expected %+v", sp, w.m.spans[sp.Bucket].span)
			}
		}
	}
}

// checkRows counts the rows of each kind: nothing is left behind, and nothing is both referenced and garbage.
func checkRows(t *testing.T, w *world, r host.Reader) {
	t.Helper()
	got, want := map[byte]int{}, map[byte]int{}
	refs, garbage := map[string]bool{}, map[string]bool{}
	err := scan(r, []byte{0}, []byte{0xff}, func(key, value []byte) (bool, error) {
		if key[0] != groupData {
			if key[0] == groupSpan {
				got[groupSpan]++
			}
			return true, nil
		}
		_, _, rest, err := splitSpanPrefix(key)
		if err != nil {
			return false, err
		}
		got[rest[0]]++
		switch rest[0] {
		case tagBlob:
			refs[string(rest[1:])] = true
		case tagGarbage:
			garbage[string(rest[1:])] = true
		case tagRepair:
			if id := string(rest[2 : len(rest)-1]); !refs[id] {
				t.Fatalf("r row of blob %x, which nothing references", id)
			}
		case tagCurrent:
			if len(value) > maxCurrentRow {
				t.Fatalf("l row of %d bytes, expected at most %d", len(value), maxCurrentRow)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range garbage {
		if refs[id] {
			t.Fatalf("blob %x is referenced and garbage", id)
		}
	}
	for _, s := range w.m.spans {
		want[groupSpan]++
		want[tagAbandoned] += len(s.abandoned)
		want[tagBlob] += len(s.holders())
		want[tagDone] += len(s.done)
		want[tagDoneAt] += len(s.done)
		want[tagGarbage] += len(s.garbage)
		want[tagCurrent] += len(s.objects)
		want[tagVersion] += len(s.objects)
		want[tagRepair] += len(s.repairs)
		want[tagUpload] += len(s.uploads)
		for _, o := range s.objects {
			if o.v.Inline {
				want[tagBody]++
			}
			if n := len(o.v.Parts); n > chunkParts {
				want[tagParts] += (n + chunkParts - 1) / chunkParts
			}
		}
		for _, u := range s.uploads {
			want[tagPart] += len(u.parts)
		}
	}
	for tag, n := range want {
		if n == 0 {
			delete(want, tag)
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("rows by tag %v, expected %v", got, want)
	}
}
