package object

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"slices"
	"testing"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard/shardtest"
)

func (h *harness) createUpload(key string) ident.ID {
	h.t.Helper()
	id, err := h.e.CreateUpload(h.t.Context(), &CreateUploadRequest{Bucket: testBucket, Key: key, Headers: []metadata.Pair{{Name: "Content-Type", Value: "x/y"}}})
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

func (h *harness) putPart(key string, id ident.ID, number int, body []byte) metadata.CompletePart {
	h.t.Helper()
	p, err := h.e.PutPart(h.t.Context(), &PutPartRequest{Bucket: testBucket, Key: key, UploadID: id, Number: number, Body: bodyOf(body)})
	if err != nil {
		h.t.Fatal(err)
	}
	if p.ETag != etagOf(body) || p.Size != int64(len(body)) || int(p.Number) != number || p.ModTime == 0 {
		h.t.Fatalf("part %+v", p)
	}
	return metadata.CompletePart{Number: p.Number, ETag: p.ETag}
}

func completeOf(key string, id ident.ID, parts ...metadata.CompletePart) *CompleteRequest {
	return &CompleteRequest{Bucket: testBucket, Key: key, UploadID: id, Parts: parts, MinPartSize: 1 << 20,
		Seal: func(u *metadata.Upload, parts []metadata.Part) (Sealed, error) {
			return Sealed{ETag: fmt.Sprintf("%s-%d", parts[0].ETag[:8], len(parts))}, nil
		}}
}

func TestPartsAreStitchedIntoOneBody(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 1)
	id := h.createUpload("key")
	bodies := [][]byte{randomBody(1, 5<<20), randomBody(2, 9<<20+1), randomBody(3, 100)}
	h.putPart("key", id, 2, randomBody(9, 2<<20)) // replaced below
	unlisted := h.putPart("key", id, 7, randomBody(8, 1<<20))
	var parts []metadata.CompletePart
	var whole []byte
	for i, b := range bodies {
		parts = append(parts, h.putPart("key", id, i+1, b))
		whole = append(whole, b...)
	}
	h.expectNoKey("key")
	page, err := h.e.ListParts(t.Context(), testBucket, "key", id, 1, 2)
	if err != nil || len(page.Parts) != 2 || page.Parts[0].Number != 2 || !page.Truncated || page.Next != 3 || page.Upload.ID != id {
		t.Fatalf("parts after 1: %+v, %v", page, err)
	}
	v, err := h.e.Complete(t.Context(), completeOf("key", id, parts...))
	if err != nil {
		t.Fatal(err)
	}
	o := h.open("key")
	if v.Size != int64(len(whole)) || o.Size != v.Size || o.ID != v.ID || o.ETag != v.ETag || !o.Multipart() || len(o.Parts) != 3 || o.Headers[0].Value != "x/y" {
		t.Fatalf("completed %+v, opened %+v", v, o.Version)
	}
	h.expect("key", whole)
	for _, r := range [][2]int{{5<<20 - 10, 20}, {14<<20 - 5, 50}, {0, 1}, {len(whole) - 1, 1}, {5 << 20, 9<<20 + 1}} {
		got, err := h.read("key", int64(r[0]), int64(r[1]))
		if err != nil || !bytes.Equal(got, whole[r[0]:r[0]+r[1]]) {
			t.Fatalf("range %v: %d bytes, %v", r, len(got), err)
		}
	}
	again, err := h.e.Complete(t.Context(), completeOf("key", id, parts...))
	if err != nil || again.ID != v.ID || again.ETag != v.ETag {
		t.Errorf("a repeated complete: %+v, %v", again, err)
	}
	if _, err := h.e.PutPart(t.Context(), &PutPartRequest{Bucket: testBucket, Key: "key", UploadID: id, Number: 1, Body: bodyOf([]byte("x"))}); !oerr.Is(err, oerr.NoSuchUpload) {
		t.Errorf("a part after complete: %v", err)
	}
	if _, err := h.e.ListParts(t.Context(), testBucket, "key", id, 0, 10); !oerr.Is(err, oerr.NoSuchUpload) {
		t.Errorf("parts after complete: %v", err)
	}
	_ = unlisted
}

func TestCompleteRefusesWhatWasNotUploaded(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	id := h.createUpload("key")
	one, two := h.putPart("key", id, 1, randomBody(1, 1<<20)), h.putPart("key", id, 2, randomBody(2, 100))
	three := h.putPart("key", id, 3, randomBody(2, 100))
	wrong := one
	wrong.ETag = "0123"
	refusing := completeOf("key", id, one, two)
	broken := errors.New("bad digest")
	refusing.Seal = func(*metadata.Upload, []metadata.Part) (Sealed, error) { return Sealed{}, broken }
	if _, err := h.e.Complete(t.Context(), refusing); err != broken {
		t.Errorf("seal refuses: %v", err)
	}
	for name, c := range map[string]struct {
		parts []metadata.CompletePart
		kind  oerr.Kind
	}{
		"out of order":   {[]metadata.CompletePart{two, one}, oerr.InvalidPartOrder},
		"twice":          {[]metadata.CompletePart{one, one}, oerr.InvalidPartOrder},
		"another etag":   {[]metadata.CompletePart{wrong, two}, oerr.InvalidPart},
		"not there":      {[]metadata.CompletePart{one, {Number: 9, ETag: one.ETag}}, oerr.InvalidPart},
		"small in front": {[]metadata.CompletePart{two, three}, oerr.EntityTooSmall},
	} {
		if _, err := h.e.Complete(t.Context(), completeOf("key", id, c.parts...)); !oerr.Is(err, c.kind) {
			t.Errorf("%s: %v, expected %s", name, err, c.kind)
		}
	}
	h.expectNoKey("key")
	if err := h.e.AbortUpload(t.Context(), testBucket, "key", id); err != nil {
		t.Fatal(err)
	}
	if err := h.e.AbortUpload(t.Context(), testBucket, "key", id); !oerr.Is(err, oerr.NoSuchUpload) {
		t.Errorf("aborted twice: %v", err)
	}
	ans, err := h.router.GroupQuery(t.Context(), 1, &metadata.Query{Op: metadata.QueryGarbage})
	if err != nil || len(ans.Garbage) != 3 {
		t.Errorf("%d garbage rows after the abort, %v", len(ans.Garbage), err)
	}
}

func TestAPartToAnUploadThatIsNotThereWritesNothing(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	_, err := h.e.PutPart(t.Context(), &PutPartRequest{Bucket: testBucket, Key: "key", UploadID: ident.New(), Number: 1, Body: bodyOf(randomBody(1, 1<<20))})
	if !oerr.Is(err, oerr.NoSuchUpload) || h.nodes.Shards() != 0 {
		t.Errorf("%v, %d shards", err, h.nodes.Shards())
	}
	id := h.createUpload("key")
	for _, n := range []int{0, -1, 10001} {
		if _, err := h.e.PutPart(t.Context(), &PutPartRequest{Bucket: testBucket, Key: "key", UploadID: id, Number: n, Body: bodyOf(nil)}); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("part %d: %v", n, err)
		}
	}
	h.putPart("key", id, 1, nil) // an empty part has no blob
	if v, err := h.e.Complete(t.Context(), completeOf("key", id, metadata.CompletePart{Number: 1, ETag: etagOf(nil)})); err != nil || v.Size != 0 {
		t.Errorf("an empty upload: %+v, %v", v, err)
	}
	h.expect("key", nil)
}

func TestUploadsAreListedInPages(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 1, M: 0}, 0)
	type upload struct {
		key string
		id  ident.ID
	}
	var want []upload
	for _, key := range []string{"a/1", "a/2", "b", "b", "c/x/y", "d"} {
		want = append(want, upload{key, h.createUpload(key)})
	}
	slices.SortFunc(want, func(a, b upload) int {
		if a.key != b.key {
			return bytes.Compare([]byte(a.key), []byte(b.key))
		}
		return a.id.Compare(b.id)
	})
	for page := 1; page <= 7; page++ {
		var got []upload
		req := &ListUploadsRequest{Bucket: testBucket, Max: page}
		for {
			res, err := h.e.ListUploads(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range res.Uploads {
				got = append(got, upload{u.Key, u.ID})
			}
			if !res.Truncated {
				break
			}
			req.KeyMarker, req.UploadIDMarker = res.NextKey, res.NextID
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pages of %d: %v, expected %v", page, got, want)
		}
		var names []string
		req = &ListUploadsRequest{Bucket: testBucket, Max: page, Delimiter: "/"}
		for {
			res, err := h.e.ListUploads(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Prefixes)+len(res.Uploads) > page {
				t.Fatalf("a page of %d has %d and %d", page, len(res.Prefixes), len(res.Uploads))
			}
			names = append(names, res.Prefixes...)
			for _, u := range res.Uploads {
				names = append(names, u.Key)
			}
			if !res.Truncated {
				break
			}
			req.KeyMarker, req.UploadIDMarker = res.NextKey, res.NextID
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a/", "b", "b", "c/", "d"}) {
			t.Fatalf("pages of %d with a delimiter: %v", page, names)
		}
	}
}

func TestObjectsAreListedInPages(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 1, M: 0}, 0)
	for _, key := range []string{"a", "b/1", "b/2", "c", "d/e/f"} {
		h.put(key, []byte(key))
	}
	var got []string
	req := &ListRequest{Bucket: testBucket, Delimiter: "/", Max: 2}
	for {
		res, err := h.e.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Entries {
			got = append(got, e.Key)
		}
		got = append(got, res.Prefixes...)
		if !res.Truncated {
			break
		}
		req.After = res.Next
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b/", "c", "d/"}) {
		t.Errorf("listed %v", got)
	}
	if res, err := h.e.List(t.Context(), &ListRequest{Bucket: testBucket}); err != nil || len(res.Entries) != 0 || res.Truncated {
		t.Errorf("a page of none: %+v, %v", res, err)
	}
	if _, err := h.e.List(t.Context(), &ListRequest{Bucket: "nowhere"}); !oerr.Is(err, oerr.NoSuchBucket) {
		t.Errorf("a page of none of no bucket: %v", err)
	}
}

func TestConditionsAreCheckedAtTheCommit(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	for _, size := range []int{10, oneSlab} {
		key := fmt.Sprint(size)
		put := func(seed uint64, p metadata.Precondition) error {
			req := h.request(key, randomBody(seed, size))
			req.Precondition = p
			_, err := h.e.Put(t.Context(), req)
			return err
		}
		if err := put(1, metadata.Precondition{IfMatch: []string{"*"}}); !oerr.Is(err, oerr.NoSuchKey) {
			t.Errorf("if-match on no key: %v", err)
		}
		if err := put(1, metadata.Precondition{IfNoneMatchAny: true}); err != nil {
			t.Errorf("if-none-match on no key: %v", err)
		}
		if err := put(2, metadata.Precondition{IfMatch: []string{"other"}}); !oerr.Is(err, oerr.PreconditionFailed) {
			t.Errorf("if-match with another etag: %v", err)
		}
		if err := put(2, metadata.Precondition{IfMatch: []string{etagOf(randomBody(1, size))}}); err != nil {
			t.Errorf("if-match with the etag: %v", err)
		}
		h.expect(key, randomBody(2, size))
		if err := h.e.Delete(t.Context(), testBucket, key, metadata.Precondition{IfMatch: []string{"other"}}); !oerr.Is(err, oerr.PreconditionFailed) {
			t.Errorf("conditional delete: %v", err)
		}
		for range 2 { // absent is success
			if err := h.e.Delete(t.Context(), testBucket, key, metadata.Precondition{}); err != nil {
				t.Error(err)
			}
		}
		h.expectNoKey(key)
	}
}

func TestACopyHasItsOwnBlobsAndDigests(t *testing.T) {
	for _, size := range []int{0, 100, oneSlab, manySlabs} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
			body := randomBody(1, size)
			req := h.request("src", body)
			req.Headers = []metadata.Pair{{Name: "Content-Type", Value: "a/b"}}
			if _, err := h.e.Put(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			digests := func(src *metadata.Version) ([]hash.Hash, func() (Sealed, error)) {
				b := bodyOf(nil)
				return b.Digests, b.Seal
			}
			copyReq := &CopyRequest{SrcBucket: testBucket, SrcKey: "src", DstBucket: testBucket, DstKey: "dst", Digests: digests}
			res, err := h.e.Copy(t.Context(), copyReq)
			if err != nil || res.Version.ETag != etagOf(body) || res.Source.Key != "src" {
				t.Fatalf("copy: %+v, %v", res, err)
			}
			h.expect("dst", body)
			if o := h.open("dst"); o.Headers[0].Value != "a/b" {
				t.Errorf("headers of the copy: %v", o.Headers)
			}
			if size > oneSlab && h.blob("dst").ID == h.blob("src").ID {
				t.Error("source and copy share a blob")
			}
			copyReq.Headers, copyReq.DstKey = []metadata.Pair{{Name: "Content-Type", Value: "c/d"}}, "src" // onto itself
			if _, err := h.e.Copy(t.Context(), copyReq); err != nil {
				t.Fatal(err)
			}
			h.expect("src", body)
			if o := h.open("src"); o.Headers[0].Value != "c/d" {
				t.Errorf("headers of the copy onto itself: %v", o.Headers)
			}
			copyReq.SrcCondition = func(*metadata.Version) error { return oerr.E("test", oerr.PreconditionFailed, nil) }
			if _, err := h.e.Copy(t.Context(), copyReq); !oerr.Is(err, oerr.PreconditionFailed) {
				t.Errorf("condition: %v", err)
			}
		})
	}
}

func TestAPartMayBeCopiedFromARange(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	body := randomBody(1, manySlabs)
	h.put("src", body)
	id := h.createUpload("dst")
	req := &CopyRequest{SrcBucket: testBucket, SrcKey: "src", DstBucket: testBucket, DstKey: "dst", UploadID: id, PartNumber: 3,
		Range: func(size int64) (int64, int64, error) { return 1000, 5 << 20, nil },
		Digests: func(*metadata.Version) ([]hash.Hash, func() (Sealed, error)) {
			b := bodyOf(nil)
			return b.Digests, b.Seal
		}}
	want := body[1000 : 1000+5<<20]
	res, err := h.e.CopyPart(t.Context(), req)
	if err != nil || res.Part.ETag != etagOf(want) || res.Part.Size != 5<<20 {
		t.Fatalf("copied part %+v, %v", res.Part, err)
	}
	if _, err := h.e.Complete(t.Context(), completeOf("dst", id, metadata.CompletePart{Number: 3, ETag: res.Part.ETag})); err != nil {
		t.Fatal(err)
	}
	h.expect("dst", want)
	req.Range = func(size int64) (int64, int64, error) { return 0, size + 1, nil }
	if _, err := h.e.CopyPart(t.Context(), req); !oerr.Is(err, oerr.InvalidRange) {
		t.Errorf("a range beyond the source: %v", err)
	}
}

func TestACopyWhoseSourceCannotBeReadLeavesNothing(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	h.put("src", randomBody(1, manySlabs))
	h.nodes.SetFault(shardtest.Fail(oerr.Unavailable, shardtest.OpRead))
	if _, err := h.e.Copy(t.Context(), &CopyRequest{SrcBucket: testBucket, SrcKey: "src", DstBucket: testBucket, DstKey: "dst"}); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("%v, expected %s", err, oerr.Unavailable)
	}
	h.expectNoKey("dst")
	h.eventually("only the source's shards are left", func() bool { return h.nodes.Shards() == 4 && h.pool.InUse() == 0 })
}
