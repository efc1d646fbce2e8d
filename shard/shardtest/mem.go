package shardtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// maxList bounds one List answer, as a real drive does.
const maxList = 10000

// Mem is a shard.Endpoint whose drives are maps. Bytes are copied in and out, so nothing in it aliases a caller's
// buffer. Zero faults is the default.
type Mem struct {
	mu struct {
		sync.Mutex
		drives map[ident.Drive]*memDrive
		fault  Fault
		down   bool
		calls  map[Op]int
	}
}

type memDrive struct {
	incarnation ident.Incarnation
	epoch       uint64
	down        bool
	fenced      bool
	full        bool
	shards      map[memKey]*memShard
	writers     map[memKey]*memWriter
}

type memKey struct {
	blob  ident.ID
	index uint8
}

func (k memKey) compare(o memKey) int {
	if c := k.blob.Compare(o.blob); c != 0 {
		return c
	}
	return int(k.index) - int(o.index)
}

type memShard struct {
	spec shard.Spec
	data []byte
	crcs []uint32
}

// NewMem returns an endpoint with these drives, each empty and in incarnation 1.
func NewMem(drives ...ident.Drive) *Mem {
	m := &Mem{}
	m.mu.drives = map[ident.Drive]*memDrive{}
	m.mu.calls = map[Op]int{}
	for _, d := range drives {
		m.mu.drives[d] = &memDrive{incarnation: 1, shards: map[memKey]*memShard{}, writers: map[memKey]*memWriter{}}
	}
	return m
}

// SetFault installs the function that every call goes through; nil removes it.
func (m *Mem) SetFault(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fault = f
}

// SetDown makes the whole endpoint Unavailable, or brings it back; open writers die.
func (m *Mem) SetDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.down = down
	if down {
		for _, d := range m.mu.drives {
			d.killWriters(oerr.Unavailable)
		}
	}
}

// SetDriveDown makes one drive Unavailable, or brings it back with what it had.
func (m *Mem) SetDriveDown(drive ident.Drive, down bool) {
	m.drive(drive, func(d *memDrive) {
		d.down = down
		if down {
			d.killWriters(oerr.Unavailable)
		}
	})
}

// SetFenced makes one drive refuse writes with DriveFenced.
func (m *Mem) SetFenced(drive ident.Drive, fenced bool) {
	m.drive(drive, func(d *memDrive) { d.fenced = fenced })
}

// SetFull makes one drive refuse new shards with DriveFull.
func (m *Mem) SetFull(drive ident.Drive, full bool) {
	m.drive(drive, func(d *memDrive) { d.full = full })
}

// SetMinEpoch makes one drive refuse older map epochs with StaleEpoch.
func (m *Mem) SetMinEpoch(drive ident.Drive, epoch uint64) {
	m.drive(drive, func(d *memDrive) { d.epoch = epoch })
}

// Format empties one drive and gives it its next incarnation.
func (m *Mem) Format(drive ident.Drive) {
	m.drive(drive, func(d *memDrive) {
		d.killWriters(oerr.Canceled)
		d.incarnation++
		d.shards = map[memKey]*memShard{}
	})
}

// Corrupt flips one bit of a sealed shard's cells and reports whether the shard was there.
func (m *Mem) Corrupt(ref shard.Ref, offset uint64) (found bool) {
	m.drive(ref.Drive, func(d *memDrive) {
		if s := d.shards[memKey{ref.Blob, ref.Index}]; s != nil && offset < uint64(len(s.data)) {
			s.data[offset] ^= 0x40
			found = true
		}
	})
	return found
}

// Drop loses a sealed shard without a trace and reports whether it was there.
func (m *Mem) Drop(ref shard.Ref) (found bool) {
	m.drive(ref.Drive, func(d *memDrive) {
		_, found = d.shards[memKey{ref.Blob, ref.Index}]
		delete(d.shards, memKey{ref.Blob, ref.Index})
	})
	return found
}

// Shards returns the number of sealed shards on all drives, Writers that of open writers.
func (m *Mem) Shards() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, d := range m.mu.drives {
		n += len(d.shards)
	}
	return n
}

// Writers returns the number of open writers on all drives.
func (m *Mem) Writers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, d := range m.mu.drives {
		n += len(d.writers)
	}
	return n
}

// Calls returns how often an operation was called.
func (m *Mem) Calls(op Op) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.calls[op]
}

func (m *Mem) drive(id ident.Drive, f func(*memDrive)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.mu.drives[id]
	if d == nil {
		panic(fmt.Sprintf("shardtest.Mem: no drive %d", id))
	}
	f(d)
}

// enter counts the call, runs the fault and checks the context.
func (m *Mem) enter(ctx context.Context, c Call) error {
	m.mu.Lock()
	f := m.mu.fault
	m.mu.calls[c.Op]++
	m.mu.Unlock()
	if f != nil {
		if err := f(ctx, c); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return oerr.E("shardtest."+c.Op.String(), oerr.KindOf(err), err)
	}
	return nil
}

// lookup returns the drive if the caller's map fits it. m.mu is held.
func (m *Mem) lookupLocked(op string, ref shard.Ref) (*memDrive, error) {
	d := m.mu.drives[ref.Drive]
	switch {
	case m.mu.down || d == nil || d.down:
		return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d is not reachable", ref.Drive)
	case ref.Incarnation < d.incarnation:
		return nil, oerr.Errorf(op, oerr.WrongIncarnation, "drive %d: request for incarnation %d, drive has %d", ref.Drive, ref.Incarnation, d.incarnation)
	case ref.Incarnation > d.incarnation:
		return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d: request for incarnation %d, drive has only %d", ref.Drive, ref.Incarnation, d.incarnation)
	case ref.Epoch < d.epoch:
		return nil, oerr.Errorf(op, oerr.StaleEpoch, "drive %d: request with map epoch %d, drive knows %d", ref.Drive, ref.Epoch, d.epoch)
	}
	return d, nil
}

// Create implements shard.Endpoint.
func (m *Mem) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	const op = "shardtest.create"
	if err := m.enter(ctx, Call{Op: OpCreate, Ref: spec.Ref, Length: spec.Length}); err != nil {
		return nil, err
	}
	if spec.Length == 0 || spec.Length%shard.Align != 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "shard length %d, expected a positive multiple of %d", spec.Length, shard.Align)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.lookupLocked(op, spec.Ref)
	if err != nil {
		return nil, err
	}
	key := memKey{spec.Blob, spec.Index}
	switch {
	case d.fenced:
		return nil, oerr.Errorf(op, oerr.DriveFenced, "drive %d is fenced", spec.Drive)
	case d.full:
		return nil, oerr.Errorf(op, oerr.DriveFull, "drive %d is below its reserve", spec.Drive)
	case d.writers[key] != nil:
		return nil, oerr.Errorf(op, oerr.InProgress, "shard %s.%d has a writer", spec.Blob, spec.Index)
	case d.shards[key] != nil && !spec.Repair:
		return nil, oerr.Errorf(op, oerr.Exists, "shard %s.%d is sealed", spec.Blob, spec.Index)
	}
	w := &memWriter{m: m, d: d, key: key, spec: spec}
	d.writers[key] = w
	w.stop = context.AfterFunc(ctx, func() { w.end(oerr.KindOf(ctx.Err()), ctx.Err()) })
	return w, nil
}

// Read implements shard.Endpoint.
func (m *Mem) Read(ctx context.Context, req shard.ReadRequest, dst []byte) ([]uint32, error) {
	const op = "shardtest.read"
	if err := m.enter(ctx, Call{Op: OpRead, Ref: req.Ref, Offset: req.Offset, Length: req.Length}); err != nil {
		return nil, err
	}
	if uint64(len(dst)) != req.Length || req.Length == 0 || req.Offset%shard.BlockSize != 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read of %d bytes at %d into %d", req.Length, req.Offset, len(dst))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.lookupLocked(op, req.Ref)
	if err != nil {
		return nil, err
	}
	s := d.shards[memKey{req.Blob, req.Index}]
	if s == nil {
		return nil, oerr.Errorf(op, oerr.ShardMissing, "no shard %s.%d on drive %d", req.Blob, req.Index, req.Drive)
	}
	if have := shard.Digest(s.crcs); req.Digest != 0 && req.Digest != have {
		return nil, oerr.Errorf(op, oerr.Corrupt, "shard %s.%d on drive %d has digest %016x, the commit says %016x", req.Blob, req.Index, req.Drive, have, req.Digest)
	}
	length := uint64(len(s.data))
	if req.Offset >= length || req.Length > length-req.Offset || (req.Length%shard.BlockSize != 0 && req.Offset+req.Length != length) {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read of %d bytes at %d from a shard of %d", req.Length, req.Offset, length)
	}
	copy(dst, s.data[req.Offset:])
	first := int(req.Offset / shard.BlockSize)
	return slices.Clone(s.crcs[first : first+shard.Blocks(req.Length)]), nil
}

// Stat implements shard.Endpoint. A shard that is not there is StateMissing, not an error.
func (m *Mem) Stat(ctx context.Context, ref shard.Ref, verify bool) (shard.Info, error) {
	const op = "shardtest.stat"
	if err := m.enter(ctx, Call{Op: OpStat, Ref: ref}); err != nil {
		return shard.Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.lookupLocked(op, ref)
	if err != nil {
		return shard.Info{}, err
	}
	key := memKey{ref.Blob, ref.Index}
	s := d.shards[key]
	switch w := d.writers[key]; {
	case w != nil:
		return shard.Info{Spec: w.spec, State: shard.StateWriting}, nil
	case s == nil:
		return shard.Info{Spec: shard.Spec{Ref: ref}, State: shard.StateMissing}, nil
	}
	info := shard.Info{Spec: s.spec, State: shard.StateOK, Digest: shard.Digest(s.crcs),
		Path: fmt.Sprintf("/mem/%d/%s.%d", ref.Drive, ref.Blob, ref.Index), Size: uint64(len(s.data))}
	if verify {
		if err := shard.CheckBlocks(ref.Blob, ref.Index, 0, s.data, s.crcs); err != nil {
			info.State, info.Detail = shard.StateCorrupt, err.Error()
		}
	}
	return info, nil
}

// Delete implements shard.Endpoint.
func (m *Mem) Delete(ctx context.Context, refs []shard.Ref) []error {
	errs := make([]error, len(refs))
	for i, ref := range refs {
		errs[i] = m.delete(ctx, ref)
	}
	return errs
}

func (m *Mem) delete(ctx context.Context, ref shard.Ref) error {
	if err := m.enter(ctx, Call{Op: OpDelete, Ref: ref}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.lookupLocked("shardtest.delete", ref)
	if err != nil {
		return err
	}
	key := memKey{ref.Blob, ref.Index}
	if w := d.writers[key]; w != nil {
		w.endLocked(oerr.Canceled, fmt.Errorf("shard %s.%d was deleted", ref.Blob, ref.Index))
	}
	delete(d.shards, key)
	return nil
}

// List implements shard.Endpoint.
func (m *Mem) List(ctx context.Context, drive ident.Drive, after ident.ID, afterIndex uint8, max int) ([]shard.Info, error) {
	const op = "shardtest.list"
	if err := m.enter(ctx, Call{Op: OpList, Ref: shard.Ref{Drive: drive}}); err != nil {
		return nil, err
	}
	if max <= 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "list of %d shards", max)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.mu.drives[drive]
	if m.mu.down || d == nil || d.down {
		return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d is not reachable", drive)
	}
	var keys []memKey
	for k := range d.shards {
		if k.compare(memKey{after, afterIndex}) > 0 || after.IsZero() {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, memKey.compare)
	keys = keys[:min(len(keys), max, maxList)]
	infos := make([]shard.Info, 0, len(keys))
	for _, k := range keys {
		s := d.shards[k]
		infos = append(infos, shard.Info{Spec: shard.Spec{Ref: s.spec.Ref, Length: s.spec.Length}, State: shard.StateOK, Digest: shard.Digest(s.crcs)})
	}
	return infos, nil
}

// Data returns a copy of a sealed shard's cells and CRCs; nil when it is not there.
func (m *Mem) Data(ref shard.Ref) (data []byte, crcs []uint32) {
	m.drive(ref.Drive, func(d *memDrive) {
		if s := d.shards[memKey{ref.Blob, ref.Index}]; s != nil {
			data, crcs = bytes.Clone(s.data), slices.Clone(s.crcs)
		}
	})
	return data, crcs
}

// MemSubject gives the suite a Mem with all hooks. Transports replace Endpoint by their own view of m.
func MemSubject(m *Mem, drive ident.Drive) Subject {
	return Subject{
		Endpoint: m, Drive: drive,
		SetMinEpoch: func(e uint64) { m.SetMinEpoch(drive, e) },
		Format:      func() { m.Format(drive) },
		Corrupt:     m.Corrupt,
		Hang: func() func() {
			m.SetFault(Hang())
			return func() { m.SetFault(nil) }
		},
		SetFull:   func(v bool) { m.SetFull(drive, v) },
		SetFenced: func(v bool) { m.SetFenced(drive, v) },
		SetDown:   m.SetDown,
		Fail: func(kind oerr.Kind, op Op) func() {
			m.SetFault(Fail(kind, op))
			return func() { m.SetFault(nil) }
		},
	}
}
