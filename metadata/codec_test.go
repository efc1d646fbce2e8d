package metadata

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

var update = flag.Bool("update", false, "write golden files anew")

// samples are commands of every op, from the generator of the random test.
func samples(seed uint64, n int) []*Command {
	w := newWorld(seed)
	var out []*Command
	for range n {
		c := w.next()
		w.m.apply(c, w.index)
		out = append(out, c)
	}
	return out
}

func TestEveryCommandComesBackFromItsEncoding(t *testing.T) {
	ops := map[Op]bool{}
	for seed := uint64(1); seed <= 4; seed++ {
		for i, c := range samples(seed, 600) {
			ops[c.Op] = true
			if err := c.Validate(); err != nil {
				t.Fatalf("seed %d command %d: %v", seed, i, err)
			}
			b := c.Append([]byte("before"))[len("before"):]
			got, err := DecodeCommand(b)
			if err != nil {
				t.Fatalf("seed %d command %d (op %d): %v", seed, i, c.Op, err)
			}
			if !reflect.DeepEqual(got, c) {
				t.Fatalf("seed %d command %d: %+v, expected %+v", seed, i, got, c)
			}
			if i%40 != 0 {
				continue
			}
			for cut := range b {
				if _, err := DecodeCommand(b[:cut]); !oerr.Is(err, oerr.InvalidArgument) {
					t.Fatalf("op %d cut to %d of %d bytes: %v, expected InvalidArgument", c.Op, cut, len(b), err)
				}
			}
			if _, err := DecodeCommand(append(bytes.Clone(b), 0)); err == nil {
				t.Fatalf("op %d with a byte left over was accepted", c.Op)
			}
		}
	}
	for _, c := range oneOfEach() {
		if got, err := DecodeCommand(c.Append(nil)); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("op %d: %+v, %v, expected %+v", c.Op, got, err, c)
		}
		if !ops[c.Op] {
			t.Errorf("no random sample of op %d", c.Op)
		}
	}
}

func TestAnUnknownVersionOrOpIsRefused(t *testing.T) {
	b := samples(1, 1)[0].Append(nil)
	for at, v := range map[int]byte{0: 2, 1: 99} {
		bad := bytes.Clone(b)
		bad[at] = v
		if _, err := DecodeCommand(bad); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("byte %d = %d: %v, expected InvalidArgument", at, v, err)
		}
	}
	if _, err := DecodeCommand(make([]byte, MaxCommandSize+1)); !oerr.Is(err, oerr.InvalidArgument) {
		t.Errorf("over-long command: %v, expected InvalidArgument", err)
	}
	for _, decode := range []func([]byte) error{
		func(b []byte) error { _, err := DecodeResult(b); return err },
		func(b []byte) error { _, err := DecodeQuery(b); return err },
		func(b []byte) error { _, err := DecodeAnswer(b); return err },
	} {
		if decode(append([]byte{9}, make([]byte, 200)...)) == nil || decode(nil) == nil {
			t.Error("a decoder took version 9, or nothing")
		}
	}
}

func TestACountThatTheInputCannotHoldAllocatesNothing(t *testing.T) {
	b := (&Command{Op: OpGarbageDone, RequestID: testID('R', 1)}).Append(nil)
	b = append(b[:len(b)-1], 0xff, 0xff, 0xff, 0xff, 0x0f) // four billion blobs
	if n := testing.AllocsPerRun(10, func() {
		if _, err := DecodeCommand(b); err == nil {
			t.Error("accepted")
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

func sampleBlob() *Blob {
	return &Blob{ID: testID('B', 1), PG: 300, Epoch: 4, K: 2, M: 1, CellSize: 64 << 10, Size: 70000, Missing: 4, Digests: []uint64{1, 1 << 63, 3},
		WriterNode: 2, WriterStart: testID('S', 1), WriterPut: 9}
}

// oneOfEach are commands of every op with every field that the op names.
func oneOfEach() []*Command {
	a := bigAnswer()
	a.Version.DeleteMarker = false
	p := Precondition{IfNoneMatchAny: true, IfNoneMatch: []string{"x"}, IfMatch: []string{"*", "y"}}
	complete := []CompletePart{{Number: 1, ETag: "p", Checksum: []byte("c")}, {Number: 700, ETag: "q"}}
	out := []*Command{
		{Op: OpCreateSpan, Span: &a.Spans[0]}, {Op: OpSealSpan}, {Op: OpDropSpan}, {Op: OpSetMinEpoch, MinEpoch: 500},
		{Op: OpPut, Key: "k", Version: a.Version, Body: []byte("body"), Precondition: p}, {Op: OpDelete, Key: "k", Precondition: p},
		{Op: OpCreateUpload, Key: "k", Upload: &a.Uploads[0]}, {Op: OpPutPart, Key: "k", UploadID: testID('U', 1), Part: &a.Parts[0]},
		{Op: OpCompleteUpload, Key: "k", UploadID: testID('U', 1), Version: &Version{ID: testID('V', 9)}, Complete: complete, Precondition: p,
			MinPartSize: 5 << 20, Checksums: a.Version.Checksums, ETag: "e-2"},
		{Op: OpAbortUpload, Key: "k", UploadID: testID('U', 1)},
		{Op: OpLanded, Landings: []Landing{{Key: "k", Blob: testID('B', 1), Index: 2, Drive: 300, Incarnation: 4, Digest: 1 << 60}}},
		{Op: OpReportBad, Reports: []Report{{Key: "k", Version: testID('V', 1), Blob: testID('B', 1), Index: 2}}},
		{Op: OpRepairDone, Repairs: []RepairOutcome{{Blob: testID('B', 1), Index: 2, State: RepairLost}}},
		{Op: OpGarbageDone, Blobs: []ident.ID{testID('B', 1), testID('B', 2)}},
		{Op: OpAbandon, Blobs: []ident.ID{testID('B', 1)}, Abandoned: []Blob{*sampleBlob()}},
	}
	for i, c := range out {
		c.RequestID, c.Bucket, c.Generation, c.Epoch = testID('R', i), testID('b', 1), 7, 300
		c.FirstIndex, c.Now = 1000, 1_700_000_000_000
	}
	return out
}

func bigAnswer() *Answer {
	b := testID('b', 1)
	x := sampleBlob()
	v := &Version{ID: testID('V', 1), Seq: 9, Key: "k\x00", Size: 7, ETag: "e", ModTime: -5, Inline: true, DeleteMarker: true,
		Headers: []Pair{{"a", "b"}, {"c", ""}}, Checksums: []Checksum{{Algorithm: 5, Composite: true, Value: []byte("sum")}},
		Parts: []Part{{Number: 1, Size: x.Size, ETag: "p", ModTime: 3, Blob: x, Checksum: &Checksum{Algorithm: 1}}, {Number: 2}}}
	done := &UploadDone{Version: testID('V', 2), ETag: "d", At: 4, Checksum: &v.Checksums[0]}
	return &Answer{Version: v, Body: []byte("body"), Truncated: true, Next: "n\xff", Upload: &Upload{ID: testID('U', 1), Key: "k", Done: done},
		Entries:  []Entry{{Key: "a", Version: testID('V', 3), Size: 1, ETag: "t", ModTime: 2, Algorithm: 4, Composite: true}, {Key: "b"}},
		Prefixes: []string{"p/", ""}, Uploads: []Upload{{ID: testID('U', 2), Key: "z", Created: 8, Headers: []Pair{{"h", "v"}}, Algorithm: 2, Composite: true}},
		Parts: v.Parts, Repairs: []RepairRow{{Blob: *x, Index: 3, Bucket: b, Key: "k", Version: v.ID, Part: 2, UploadID: testID('U', 1), Priority: 1, Created: 9, Checked: true, Lost: true}},
		Garbage: []GarbageRow{{Blob: *x, Bucket: b, Key: "g", Created: 1}}, Blobs: []BlobRef{{Blob: *x, Bucket: b, Key: "r", Version: v.ID, Part: 7, UploadID: testID('U', 3)}},
		Referenced: []bool{true, false}, Spans: []Span{{Bucket: b, Start: "s", End: "t", Generation: 4, MinEpoch: 5, Seq: 6, Sealed: true, Versioning: 1}},
		Pending: 11, Lost: 12}
}

func bigQuery() *Query {
	return &Query{Op: QueryList, Bucket: testID('b', 1), Generation: 3, Key: "k", WithBody: true, Prefix: "p", Delimiter: "/", After: "p/q",
		AfterUpload: testID('U', 1), AfterPart: 5, UploadID: testID('U', 2), Max: 1000, Blobs: []ident.ID{testID('B', 1)}}
}

func bigResult() *Result {
	return &Result{Code: 4, Detail: "why", Version: testID('V', 1), Seq: 5, ModTime: 6, ETag: "e", Live: []bool{true, false}, Index: 7}
}

func TestResultQueryAndAnswerComeBackFromTheirEncodings(t *testing.T) {
	r, err := DecodeResult(bigResult().Append(nil))
	if err != nil || !reflect.DeepEqual(r, bigResult()) {
		t.Errorf("result %+v, %v, expected %+v", r, err, bigResult())
	}
	q, err := DecodeQuery(bigQuery().Append(nil))
	if err != nil || !reflect.DeepEqual(q, bigQuery()) {
		t.Errorf("query %+v, %v, expected %+v", q, err, bigQuery())
	}
	b := bigAnswer().Append(nil)
	a, err := DecodeAnswer(b)
	if err != nil || !reflect.DeepEqual(a, bigAnswer()) {
		t.Errorf("answer %+v, %v, expected %+v", a, err, bigAnswer())
	}
	for cut := range b {
		if _, err := DecodeAnswer(b[:cut]); err == nil {
			t.Fatalf("answer cut to %d of %d bytes was accepted", cut, len(b))
		}
	}
}

func TestEncodingsAreAsTheGoldenFileSays(t *testing.T) {
	var out strings.Builder
	for _, c := range oneOfEach() {
		fmt.Fprintf(&out, "command %d %x\n", c.Op, c.Append(nil))
	}
	a := bigAnswer()
	fmt.Fprintf(&out, "result %x\nquery %x\nanswer %x\n", bigResult().Append(nil), bigQuery().Append(nil), a.Append(nil))
	cur := currentOf(a.Version)
	fmt.Fprintf(&out, "l %x\nv %x\nm %x\np %x\nu %x\ng %x\n", cur.append(nil), appendVersionRow(nil, a.Version), appendPartsRow(nil, a.Parts),
		appendPartRow(nil, &a.Parts[0]), appendUploadRow(nil, a.Upload), appendGarbageRow(nil, &a.Garbage[0]))
	ref := refRow{Key: "k", Part: 2, Version: testID('V', 1), Seq: 3, Pos: 1}
	sp := spanState{Span: a.Spans[0], Dropped: true, Pending: 1, Lost: 2, Garbage: 3, TrimEpoch: 4}
	fmt.Fprintf(&out, "b %x\nr %x\ns %x\n", ref.append(nil), repairState{Created: 5, Checked: true}.append(nil), sp.append(nil))
	k := keys{prefix: spanPrefix(testID('b', 1), "\x00s")}
	fmt.Fprintf(&out, "key-l %x\nkey-v %x\n", k.current("k\x00"), bytes.Clone(k.version("k\x00", 2)))
	fmt.Fprintf(&out, "key-r %x\nkey-m %x\n", bytes.Clone(k.repair(1, testID('B', 1), 2)), bytes.Clone(k.numbered(tagParts, testID('V', 1), 3)))
	path := filepath.Join("testdata", "encodings.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("encodings are not those of %s: a change needs a new format version\n%s", path, out.String())
	}
}

func TestRowKeysKeepOrderAndNeverCollide(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var all []string
	for range 400 {
		b := make([]byte, r.IntN(5))
		for i := range b {
			b[i] = []byte{0, 1, 2, 0xfe, 0xff, 'a'}[r.IntN(6)]
		}
		all = append(all, string(b))
	}
	for _, a := range all {
		ea := appendKeyPart(nil, a)
		key, rest, err := splitKeyPart(append(bytes.Clone(ea), "rest"...))
		if err != nil || key != a || string(rest) != "rest" {
			t.Fatalf("key %q came back as %q, rest %q, %v", a, key, rest, err)
		}
		for _, b := range all {
			eb := appendKeyPart(nil, b)
			if strings.Compare(a, b) != bytes.Compare(ea, eb) {
				t.Fatalf("%q and %q change order as %x and %x", a, b, ea, eb)
			}
			if a != b && bytes.HasPrefix(ea, eb) {
				t.Fatalf("%x of %q begins with %x of %q", ea, a, eb, b)
			}
		}
	}
	for _, bad := range []string{"", "abc", "a\x00", "a\x00\x02"} {
		if _, _, err := splitKeyPart([]byte(bad)); !oerr.Is(err, oerr.Corrupt) {
			t.Errorf("split %q: %v, expected Corrupt", bad, err)
		}
	}
}

func TestTheLargestListingRowFits(t *testing.T) {
	row := currentRow{Version: testID('V', 1), Seq: 1 << 63, Size: -1, ETag: strings.Repeat("e", MaxETag), ModTime: -1, Algorithm: 7, Composite: true,
		Inline: true, Blobs: true}
	if n := len(row.append(nil)); n > maxCurrentRow {
		t.Errorf("l row of %d bytes, expected at most %d", n, maxCurrentRow)
	}
}
