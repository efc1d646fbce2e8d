package store

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func id(b byte) ident.ID { return ident.ID(bytes.Repeat([]byte{b}, 16)) }

// The samples have a different value in every field.
func sampleOwner() owner {
	return owner{Cluster: id(0xc1), UUID: id(0xd2), Drive: 0x01020304, Incarnation: 7}
}

func sampleHeader(kind uint8, length uint64) header {
	o := sampleOwner()
	h := header{owner: o, Kind: kind, Spec: shard.Spec{
		Ref: shard.Ref{Drive: o.Drive, Incarnation: o.Incarnation, Epoch: 0x1122334455667788, Blob: id(0xb3), Index: 3},
		K:   4, M: 2, CellSize: 64 << 10, Length: length, BodyLen: 4*length - 5, Bucket: id(0xb4), Key: "folder/käse", Version: id(0x5e),
		Part: 17, Writer: shard.WriterID{Node: 9, StartID: id(0x57), Put: 0x99}, Attempt: 2, Repair: true}}
	if kind == kindRecord {
		h.Generation, h.Segment, h.Offset = id(0x9e), 5, 0x7000
		h.CRCs = make([]uint32, shard.Blocks(length))
		for i := range h.CRCs {
			h.CRCs[i] = 0x1000001 * uint32(i+1)
		}
		h.Digest = shard.Digest(h.CRCs)
	}
	return h
}

func sampleFooter(length uint64) footer {
	f := footer{owner: sampleOwner(), Blob: id(0xb3), Index: 3, Length: length, Stripes: stripes(length, 64<<10), CRCs: make([]uint32, shard.Blocks(length))}
	for i := range f.CRCs {
		f.CRCs[i] = 0x2000003 * uint32(i+1)
	}
	f.Digest = shard.Digest(f.CRCs)
	return f
}

// samples are all blocks of format version 1, by name.
func samples() map[string][]byte {
	block := func(n int, encode func([]byte)) []byte {
		b := bytes.Repeat([]byte{0xee}, n) // encode has to overwrite everything
		encode(b)
		return b
	}
	record, file, foot := sampleHeader(kindRecord, 200<<10), sampleHeader(kindFile, 3<<20), sampleFooter(3<<20)
	super := superblock{owner: sampleOwner(), SegmentSize: 64 << 20, Ballast: 12288}
	seg := segmentHeader{owner: sampleOwner(), Generation: id(0x9e), Number: 5, Size: 64 << 20}
	tomb := tombstone{owner: sampleOwner(), Generation: id(0x9e), Segment: 5, Offset: 0x9000, Keys: []rowKey{keyOf(id(1), 2), keyOf(id(3), 4)}}
	rec := row{Kind: rowRecord, Length: 200 << 10, Digest: record.Digest, Segment: 5, Offset: 0x7000, ncrc: uint8(copy(new([16]uint32)[:], record.CRCs))}
	copy(rec.crcs[:], record.CRCs)
	fileRow := row{Kind: rowFile, Torn: true, Length: 3 << 20, Digest: foot.Digest}
	segRow := segmentRow{Generation: id(0x9e), Records: 12, Bytes: 34567}
	return map[string][]byte{
		"superblock": block(headerSize, super.encode), "segment": block(headerSize, seg.encode), "record": block(headerSize, record.encode),
		"tombstone": block(headerSize, tomb.encode), "file": block(headerSize, file.encode), "footer": block(footerSize(3<<20), foot.encode),
		"row-record": rec.appendTo(nil), "row-file": fileRow.appendTo(nil), "row-segment": segRow.encode(),
	}
}

func TestTheFormatIsWhatItWasWhenItWasFixed(t *testing.T) {
	for name, got := range samples() {
		path := filepath.Join("testdata", "v1", name+".hex")
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(dump(got)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if dump(got) != string(want) {
			t.Errorf("%s differs from %s; a change of format needs a new version:\n%s", name, path, dump(got))
		}
	}
}

// dump is a hex dump without the lines that are all zero.
func dump(b []byte) string {
	var out strings.Builder
	for i, line := range strings.SplitAfter(hex.Dump(b), "\n") {
		if i*16 < len(b) && isZero(b[i*16:min(i*16+16, len(b))]) {
			continue
		}
		out.WriteString(line)
	}
	return out.String()
}

func TestBlocksDecodeToWhatWasEncoded(t *testing.T) {
	s := samples()
	check := func(name string, got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v\nexpected\n%+v", name, err, got, want)
		}
	}
	h, err := decodeHeader(s["record"])
	check("record", h, err, sampleHeader(kindRecord, 200<<10))
	h, err = decodeHeader(s["file"])
	check("file", h, err, sampleHeader(kindFile, 3<<20))
	f, err := decodeFooter(s["footer"])
	check("footer", f, err, sampleFooter(3<<20))
	sb, err := decodeSuperblock(s["superblock"])
	check("superblock", sb, err, superblock{owner: sampleOwner(), SegmentSize: 64 << 20, Ballast: 12288})
	tb, err := decodeTombstone(s["tombstone"])
	check("tombstone", tb, err, tombstone{owner: sampleOwner(), Generation: id(0x9e), Segment: 5, Offset: 0x9000, Keys: []rowKey{keyOf(id(1), 2), keyOf(id(3), 4)}})
}

func TestEveryFlippedBitOfABlockIsFound(t *testing.T) {
	decode := map[string]func([]byte) error{
		"record":     func(b []byte) error { _, err := decodeHeader(b); return err },
		"file":       func(b []byte) error { _, err := decodeHeader(b); return err },
		"footer":     func(b []byte) error { _, err := decodeFooter(b); return err },
		"superblock": func(b []byte) error { _, err := decodeSuperblock(b); return err },
		"segment":    func(b []byte) error { _, err := decodeSegmentHeader(b); return err },
		"tombstone":  func(b []byte) error { _, err := decodeTombstone(b); return err },
	}
	for name, f := range decode {
		b := samples()[name]
		for bit := 0; bit < 8*len(b); bit += 5 {
			b[bit/8] ^= 1 << (bit % 8)
			if err := f(b); !oerr.IsCorrupt(err) {
				t.Fatalf("%s with bit %d flipped: %v", name, bit, err)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		if err := f(b[:len(b)-1]); err == nil {
			t.Fatalf("%s with a byte less is taken", name)
		}
	}
}

func TestTheLongestKeyFits(t *testing.T) {
	h := sampleHeader(kindRecord, 1<<20-4096)
	h.Spec.Key = strings.Repeat("k", maxKeyLen)
	b := make([]byte, headerSize)
	h.encode(b)
	if got, err := decodeHeader(b); err != nil || got.Spec.Key != h.Spec.Key || len(got.CRCs) != maxRecordCRCs {
		t.Fatalf("%v: key of %d bytes, %d checksums", err, len(got.Spec.Key), len(got.CRCs))
	}
}

// fuzzBlock seals whatever comes, so that the fuzzer gets past the checksum, and checks that what decodes encodes to
// the same bytes.
func fuzzBlock(f *testing.F, names []string, again func(b []byte) ([]byte, bool)) {
	for _, n := range names {
		f.Add(samples()[n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		again(b) // as it is: mostly a wrong checksum
		if len(b) < 64 {
			return
		}
		b = append([]byte{}, b...)
		seal(b)
		if out, ok := again(b); ok {
			if twice, ok := again(out); !ok || !bytes.Equal(out, twice) {
				t.Fatalf("what was decoded and encoded does not decode to the same")
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	fuzzBlock(f, []string{"record", "file", "footer"}, func(b []byte) ([]byte, bool) {
		h, err := decodeHeader(b)
		if err != nil {
			return nil, false
		}
		out := make([]byte, headerSize)
		h.encode(out)
		return out, true
	})
}

func FuzzFooter(f *testing.F) {
	fuzzBlock(f, []string{"footer", "record"}, func(b []byte) ([]byte, bool) {
		x, err := decodeFooter(b)
		if err != nil {
			return nil, false
		}
		out := make([]byte, footerSize(x.Length))
		x.encode(out)
		return out, true
	})
}

func FuzzLog(f *testing.F) {
	fuzzBlock(f, []string{"superblock", "segment", "tombstone"}, func(b []byte) ([]byte, bool) {
		out := make([]byte, headerSize)
		if s, err := decodeSuperblock(b); err == nil {
			s.encode(out)
		} else if s, err := decodeSegmentHeader(b); err == nil {
			s.encode(out)
		} else if s, err := decodeTombstone(b); err == nil {
			s.encode(out)
		} else {
			return nil, false
		}
		return out, true
	})
}

func FuzzRow(f *testing.F) {
	for _, n := range []string{"row-record", "row-file", "row-segment"} {
		f.Add(samples()[n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRow(b); err == nil {
			if r2, err := decodeRow(r.appendTo(nil)); err != nil || r2 != r {
				t.Fatalf("%+v became %+v, %v", r, r2, err)
			}
		}
		if s, err := decodeSegmentRow(b); err == nil && !bytes.Equal(s.encode(), b) {
			t.Fatalf("%x became %x", b, s.encode())
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("0000000000000005.seg")
	f.Add(filepath.Base(shardPath("/", keyOf(id(0xab), 3))))
	f.Fuzz(func(t *testing.T, name string) {
		if n, ok := parseSegmentName(name); ok && segmentName(n) != name {
			t.Fatalf("%q is segment %d", name, n)
		}
		if k, ok := parseShardName(name); ok && filepath.Base(shardPath("/", k)) != name {
			t.Fatalf("%q is shard %x", name, k)
		}
	})
}
