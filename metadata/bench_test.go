package metadata

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"

	"objstore/internal/ident"
)

// cpuTime begins to count this process's CPU time; the returned function reports it. On a machine that does other
// things it is steadier than the time on the clock, and it has Pebble's background work in it.
func cpuTime(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	begin := used()
	return func() { b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op") }
}

// benchApply measures Apply alone on an indexed batch of Pebble, committed (without WAL) every 32 entries as a busy
// host does, over keys that are overwritten now and then.
func benchApply(b *testing.B, make func(g *group, key string) *Command) {
	store := newPebbleStore(b)
	g := newGroup(b, store)
	store.commit(b)
	cmds := [][]byte{}
	for i := range 1024 {
		cmds = append(cmds, g.fill(make(g, fmt.Sprintf("some/folder/with/keys/%08d", i*7919%100000))).Append(nil))
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer cpuTime(b)()
	for i := range b.N {
		data := cmds[i%len(cmds)]
		// Fresh request, version and blob ids, at their places in the encoding.
		fresh(data, uint64(i))
		g.index++
		res := mustApply(b, g.m, g.store, g.index, data)
		if res.Code != 0 {
			b.Fatal(res.Detail)
		}
		if i%32 == 31 {
			store.commit(b)
		}
	}
}

// fresh gives a command new ids in place: it looks for the marks that benchID left.
func fresh(data []byte, n uint64) {
	for i := 0; i+16 <= len(data); i++ {
		if data[i] == 0xf7 && data[i+1] == 0xf7 && data[i+15] == 0xf7 {
			binary.BigEndian.PutUint64(data[i+4:], n*2654435761+n)
			i += 15
		}
	}
}

func benchID(kind byte) (id ident.ID) {
	id[0], id[1], id[2], id[15] = 0xf7, 0xf7, kind, 0xf7
	return id
}

func BenchmarkApplyPutInline4KiB(b *testing.B) {
	body := make([]byte, 4096)
	benchApply(b, func(_ *group, key string) *Command {
		return &Command{Op: OpPut, RequestID: benchID(1), Key: key, Body: body, Version: &Version{ID: benchID(2), Size: 4096,
			ETag: "0123456789abcdef0123456789abcdef", Headers: []Pair{{"Content-Type", "application/octet-stream"}},
			Checksums: []Checksum{{Algorithm: 3, Value: make([]byte, 8)}}}}
	})
}

func BenchmarkApplyPutBlob(b *testing.B) {
	benchApply(b, func(_ *group, key string) *Command {
		x := &Blob{ID: benchID(3), PG: 77, Epoch: 3, K: 2, M: 2, CellSize: 64 << 10, Size: 128 << 10, Digests: []uint64{1, 2, 3, 4}, WriterNode: 1}
		return &Command{Op: OpPut, RequestID: benchID(1), Epoch: 3, Key: key, Version: &Version{ID: benchID(2), Size: x.Size,
			ETag: "0123456789abcdef0123456789abcdef", Headers: []Pair{{"Content-Type", "application/octet-stream"}}, Parts: []Part{{Size: x.Size, Blob: x}}}}
	})
}

func listStore(b *testing.B) pebbleView {
	store := newPebbleStore(b)
	g := newGroup(b, store)
	for i := range 100_000 {
		c := g.inline(fmt.Sprintf("some/folder/with/keys/%08d", i), "0123456789abcdef0123456789abcdef")
		g.must(c)
		if i%1000 == 999 {
			store.commit(b)
		}
	}
	store.commit(b)
	if err := store.db.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return pebbleView{store.db}
}

func page(i int) *Query {
	return &Query{Op: QueryList, Bucket: bucketA, Generation: 7, Max: 1000, After: fmt.Sprintf("some/folder/with/keys/%08d", i*1000%99_000)}
}

func BenchmarkList1000Of100000(b *testing.B) {
	view := listStore(b)
	defer cpuTime(b)()
	for i := range b.N {
		if a, err := Ask(view, page(i)); err != nil || len(a.Entries) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkList1000Of100000Encoded(b *testing.B) {
	view := listStore(b)
	defer cpuTime(b)()
	var buf []byte
	for i := range b.N {
		var err error
		if buf, err = AskEncoded(view, page(i), buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeList1000(b *testing.B) {
	buf, err := AskEncoded(listStore(b), page(0), nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if a, err := DecodeAnswer(buf); err != nil || len(a.Entries) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetInline(b *testing.B) {
	view := listStore(b)
	defer cpuTime(b)()
	for i := range b.N {
		q := &Query{Op: QueryGet, Bucket: bucketA, Generation: 7, WithBody: true, Key: fmt.Sprintf("some/folder/with/keys/%08d", i*7919%100_000)}
		if _, err := Ask(view, q); err != nil {
			b.Fatal(err)
		}
	}
}
