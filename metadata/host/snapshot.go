package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// A snapshot travels as chunks. Each has a header: version (1), stream id (16), group (4), receiving replica (8),
// sending replica (8), its node (4), its term (8), sequence number (4), flags (1). The first chunk goes on with the
// length of the applied row (2) and the row; then follow rows: key length, value length (uvarints), key, value. The
// last chunk ends with the hash (8) over all rows, as hashRows computes it.
const (
	chunkVersion = 1
	chunkHeader  = 54
	chunkFirst   = 1 << 0
	chunkLast    = 1 << 1

	maxChunkBytes = maxWireBatchBytes // a row larger than a chunk travels alone
	// A stream that goes quiet gives its place to another one.
	receiveIdle = 30 * time.Second
)

type chunkInfo struct {
	stream   ident.ID
	group    ident.Group
	to, from uint64
	node     ident.Node
	term     uint64
	seq      uint32
	flags    byte
	body     []byte
}

func (h *chunkInfo) header(dst []byte) []byte {
	dst = append(append(dst, chunkVersion), h.stream[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.group))
	dst = binary.LittleEndian.AppendUint64(dst, h.to)
	dst = binary.LittleEndian.AppendUint64(dst, h.from)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.node))
	dst = binary.LittleEndian.AppendUint64(dst, h.term)
	dst = binary.LittleEndian.AppendUint32(dst, h.seq)
	return append(dst, h.flags)
}

func parseChunk(b []byte) (chunkInfo, error) {
	if len(b) < chunkHeader || len(b) > maxChunkBytes || b[0] != chunkVersion {
		return chunkInfo{}, corrupt("snapshot chunk", b[:min(len(b), chunkHeader)], "version 1 and a whole header")
	}
	h := chunkInfo{
		stream: ident.ID(b[1:17]), group: ident.Group(binary.LittleEndian.Uint32(b[17:])),
		to: binary.LittleEndian.Uint64(b[21:]), from: binary.LittleEndian.Uint64(b[29:]),
		node: ident.Node(binary.LittleEndian.Uint32(b[37:])), term: binary.LittleEndian.Uint64(b[41:]),
		seq: binary.LittleEndian.Uint32(b[49:]), flags: b[53], body: b[chunkHeader:],
	}
	if h.group == formatGroup || h.to == 0 || h.from == 0 || h.node == 0 || h.term == 0 || h.flags > chunkFirst|chunkLast || (h.seq == 0) != (h.flags&chunkFirst != 0) {
		return chunkInfo{}, corrupt("snapshot chunk", b[:chunkHeader], "group, replicas, node and term; sequence number 0 first")
	}
	return h, nil
}

// SnapshotTarget tells a node with several hosts which replica a chunk is for.
func SnapshotTarget(chunk []byte) (ident.Group, uint64, error) {
	h, err := parseChunk(chunk)
	return h.group, h.to, err
}

// snapshotSource turns a consistent view of a group into chunks.
type snapshotSource struct {
	it   *pebble.Iterator
	info chunkInfo
	size int // of a chunk
	hash *xxhash.Digest
	meta []byte
	buf  []byte
	ok   bool // the iterator is on a row
	done bool
	n    [8]byte
}

// newSnapshotSource reads the group's state as it is now.
func newSnapshotSource(s *stateStore, info chunkInfo, size int) (*snapshotSource, error) {
	it, err := s.rows(info.group, true)
	if err != nil {
		return nil, err
	}
	src := &snapshotSource{it: it, info: info, size: size, hash: xxhash.New()}
	if !it.First() || len(it.Key()) != prefixLen || it.Key()[prefixLen-1] != stateMeta {
		return nil, errors.Join(oerr.Errorf("host.snapshot", oerr.Unavailable, "group %d has no applied row", info.group), it.Close())
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, errors.Join(err, it.Close())
	}
	src.meta = append(src.meta, v...)
	src.ok = it.Next()
	return src, nil
}

// next returns the next chunk, valid until the next call, and io.EOF after the last one.
func (s *snapshotSource) next() ([]byte, error) {
	if s.done {
		return nil, io.EOF
	}
	s.info.flags = 0
	if s.info.seq == 0 {
		s.info.flags = chunkFirst
	}
	s.buf = s.info.header(s.buf[:0])
	if s.info.seq == 0 {
		s.buf = binary.LittleEndian.AppendUint16(s.buf, uint16(len(s.meta)))
		s.buf = append(s.buf, s.meta...)
	}
	for rows := 0; s.ok; rows++ {
		k := s.it.Key()[prefixLen:]
		v, err := s.it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		if rows > 0 && len(s.buf)+len(k)+len(v)+20 > s.size {
			break
		}
		s.buf = binary.AppendUvarint(s.buf, uint64(len(k)))
		s.buf = binary.AppendUvarint(s.buf, uint64(len(v)))
		s.buf = append(append(s.buf, k...), v...)
		hashRow(s.hash, &s.n, k, v)
		s.ok = s.it.Next()
	}
	if !s.ok {
		if err := s.it.Error(); err != nil {
			return nil, err
		}
		s.done = true
		s.buf[chunkHeader-1] |= chunkLast
		s.buf = binary.LittleEndian.AppendUint64(s.buf, s.hash.Sum64())
	}
	s.info.seq++
	return s.buf, nil
}

func (s *snapshotSource) close() error { return s.it.Close() }

func hashRow(h *xxhash.Digest, n *[8]byte, k, v []byte) {
	for _, b := range [2][]byte{k, v} {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
}

// stagedSnapshot is a received snapshot whose tables lie in the staging folder.
type stagedSnapshot struct {
	group    ident.Group
	to, from uint64
	node     ident.Node
	term     uint64
	meta     appliedMeta
	fs       vfs.FS
	paths    []string
	done     chan error // has room for one
}

func (s *stagedSnapshot) ingest(st *stateStore) error { return st.install(s.group, s.paths) }

// finish removes what is left of the staged tables and tells the receiver.
func (s *stagedSnapshot) finish(err error) {
	for _, p := range s.paths {
		_ = s.fs.Remove(p) // gone when it was ingested; Open empties the folder anyway
	}
	select {
	case s.done <- err:
	default:
	}
}

// receiver stages one incoming snapshot at a time. Its memory is one chunk and one table block.
type receiver struct {
	fs    vfs.FS
	dir   string
	state *stateStore
	now   func() int64
	mu    struct {
		sync.Mutex
		cur   *incoming
		files uint64
	}
}

type incoming struct {
	chunkInfo
	seqNext uint32
	meta    appliedMeta
	w       *sstable.Writer
	size    int
	key     []byte
	hash    *xxhash.Digest
	n       [8]byte
	paths   []string
	lastMS  int64
	staged  *stagedSnapshot // complete: waits for its install
}

// take stages a chunk; after the last one it returns the staged snapshot, and keeps the place until release.
func (r *receiver) take(b []byte) (*stagedSnapshot, error) {
	const op = "host.snapshot"
	h, err := parseChunk(b)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	cur := r.mu.cur
	if cur != nil && cur.stream != h.stream {
		if cur.staged != nil || r.now()-cur.lastMS < receiveIdle.Milliseconds() {
			return nil, oerr.Errorf(op, oerr.Busy, "another snapshot is being received")
		}
		r.dropLocked()
		cur = nil
	}
	if cur == nil {
		if h.seq != 0 {
			return nil, oerr.Errorf(op, oerr.Unavailable, "chunk %d of a stream that is not known", h.seq)
		}
		cur = &incoming{chunkInfo: h, hash: xxhash.New()}
		r.mu.cur = cur
	}
	if cur.staged != nil || h.seq != cur.seqNext || h.group != cur.group || h.to != cur.to || h.from != cur.from || h.term != cur.term {
		r.dropLocked()
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read chunk %d of group %d, expected %d of group %d", h.seq, h.group, cur.seqNext, cur.group)
	}
	cur.seqNext++
	cur.lastMS = r.now()
	st, err := r.stageLocked(cur, h)
	if err != nil {
		r.dropLocked()
	}
	return st, err
}

func (r *receiver) stageLocked(cur *incoming, h chunkInfo) (*stagedSnapshot, error) {
	body := h.body
	if h.flags&chunkFirst != 0 {
		if len(body) < 2 || len(body) < 2+int(binary.LittleEndian.Uint16(body)) {
			return nil, corrupt("snapshot", nil, "an applied row")
		}
		n := int(binary.LittleEndian.Uint16(body))
		var err error
		if cur.meta, err = decodeAppliedMeta(body[2 : 2+n]); err != nil {
			return nil, err
		}
		if err := r.writeLocked(cur, prefix(cur.group, stateMeta), body[2:2+n]); err != nil {
			return nil, err
		}
		body = body[2+n:]
	}
	var sum []byte
	if h.flags&chunkLast != 0 {
		if len(body) < 8 {
			return nil, corrupt("snapshot", nil, "a hash at the end")
		}
		body, sum = body[:len(body)-8], body[len(body)-8:]
	}
	for len(body) > 0 {
		k, v, rest, err := nextRow(body)
		if err != nil {
			return nil, err
		}
		body = rest
		hashRow(cur.hash, &cur.n, k, v)
		cur.key = append(putPrefix(cur.key[:0], cur.group, stateRow), k...)
		if err := r.writeLocked(cur, cur.key, v); err != nil {
			return nil, err
		}
	}
	if sum == nil {
		return nil, nil
	}
	if err := cur.closeFile(); err != nil {
		return nil, err
	}
	if got, want := cur.hash.Sum64(), binary.LittleEndian.Uint64(sum); got != want {
		return nil, oerr.Errorf("host.snapshot", oerr.Corrupt, "snapshot of group %d: rows hash to %x, expected %x", cur.group, got, want)
	}
	cur.staged = &stagedSnapshot{group: cur.group, to: cur.to, from: cur.from, node: cur.node, term: cur.term, meta: cur.meta,
		fs: r.fs, paths: cur.paths, done: make(chan error, 1)}
	return cur.staged, nil
}

func nextRow(b []byte) (k, v, rest []byte, err error) {
	kl, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, nil, corrupt("snapshot row", b[:min(len(b), 16)], "a key length")
	}
	b = b[n:]
	vl, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, nil, corrupt("snapshot row", b[:min(len(b), 16)], "a value length")
	}
	b = b[n:]
	if kl > uint64(len(b)) || vl > uint64(len(b))-kl {
		return nil, nil, nil, corrupt("snapshot row", b[:min(len(b), 16)], "a whole row")
	}
	return b[:kl], b[kl : kl+vl], b[kl+vl:], nil
}

func (r *receiver) writeLocked(cur *incoming, key, value []byte) error {
	if cur.w != nil && cur.size > maxStageFileBytes {
		if err := cur.closeFile(); err != nil {
			return err
		}
	}
	if cur.w == nil {
		r.mu.files++
		path := r.fs.PathJoin(r.dir, fmt.Sprintf("%06d.sst", r.mu.files))
		f, err := r.fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return fmt.Errorf("host.snapshot: stage: %w", err)
		}
		cur.paths = append(cur.paths, path)
		cur.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{TableFormat: r.state.db.TableFormat()})
		cur.size = 0
	}
	cur.size += len(key) + len(value)
	if err := cur.w.Set(key, value); err != nil {
		return oerr.Errorf("host.snapshot", oerr.Corrupt, "snapshot of group %d: %w", cur.group, err)
	}
	return nil
}

func (i *incoming) closeFile() error {
	w := i.w
	i.w = nil
	if w == nil {
		return nil
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("host.snapshot: stage: %w", err)
	}
	return nil
}

func (r *receiver) dropLocked() {
	cur := r.mu.cur
	r.mu.cur = nil
	if cur == nil || cur.staged != nil {
		return // a complete one is removed by finish
	}
	_ = cur.closeFile() // it is thrown away
	for _, p := range cur.paths {
		_ = r.fs.Remove(p) // Open empties the folder anyway
	}
}

// release frees the place of a staged snapshot after its finish.
func (r *receiver) release(st *stagedSnapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.cur != nil && r.mu.cur.staged == st {
		r.mu.cur = nil
	}
}

func (r *receiver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked()
}
