package store

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// Store is the drives of this node.
type Store struct {
	cfg    Config
	drives map[ident.Drive]*drive // never changes
	order  []*drive
	calls  atomic.Int64
	closed atomic.Bool
}

var _ shard.Endpoint = (*Store)(nil)

// Open opens every drive and brings it to order: it scans what the index may have lost and removes what was never
// finished. A drive that cannot be read is opened as fenced, with the cause in Status, so that it does not take the
// others along; one that belongs to somebody else, or is in use, is an error.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.FS == nil {
		cfg.FS = OS()
	}
	s := &Store{cfg: cfg, drives: map[ident.Drive]*drive{}}
	for _, dc := range cfg.Drives {
		d := newDrive(&s.cfg, dc)
		s.drives[dc.ID] = d
		s.order = append(s.order, d)
	}
	var g errgroup.Group
	for _, d := range s.order {
		g.Go(d.open)
	}
	if err := g.Wait(); err != nil {
		s.Close()
		return nil, oerr.Wrap("store.open", err)
	}
	return s, nil
}

// Close refuses new work, cancels open writers, ends what is in flight and leaves the indexes so that the next Open has
// nothing to scan. A device that hangs is waited for a limited time only. It may be called again.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	for _, d := range s.order {
		d.closed.Store(true)
	}
	var g errgroup.Group
	for _, d := range s.order {
		g.Go(func() error { return d.close(&s.calls) })
	}
	return oerr.Wrap("store.close", g.Wait())
}

// drive finds a drive and counts the call, which ends with leave.
func (s *Store) drive(op string, id ident.Drive) (*drive, error) {
	s.calls.Add(1)
	d := s.drives[id]
	switch {
	case s.closed.Load():
		s.calls.Add(-1)
		return nil, oerr.Errorf(op, oerr.Closed, "store is closed")
	case d == nil:
		s.calls.Add(-1)
		return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d is not on this node", id)
	case d.failed.Load() != nil:
		s.calls.Add(-1)
		return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d could not be opened: %w", id, *d.failed.Load())
	}
	return d, nil
}

func (s *Store) leave() { s.calls.Add(-1) }

// lookup is drive for a request that says what its map knows.
func (s *Store) lookup(ctx context.Context, op string, ref *shard.Ref) (*drive, error) {
	if err := ctx.Err(); err != nil {
		return nil, oerr.E(op, oerr.KindOf(err), err)
	}
	d, err := s.drive(op, ref.Drive)
	if err != nil {
		return nil, err
	}
	have, min := d.cfg.Incarnation, d.minEpoch.Load()
	switch {
	case ref.Incarnation < have:
		err = oerr.Errorf(op, oerr.WrongIncarnation, "drive %d: request for incarnation %d, drive has %d", ref.Drive, ref.Incarnation, have)
	case ref.Incarnation > have:
		err = oerr.Errorf(op, oerr.Unavailable, "drive %d: request for incarnation %d, drive has only %d", ref.Drive, ref.Incarnation, have)
	case ref.Epoch < min:
		err = oerr.Errorf(op, oerr.StaleEpoch, "drive %d: request with map epoch %d, drive knows %d", ref.Drive, ref.Epoch, min)
	}
	if err != nil {
		s.leave()
		return nil, err
	}
	return d, nil
}

// Create implements shard.Endpoint. Nothing is written before the first Append.
func (s *Store) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	const op = "store.create"
	if err := checkSpec(&spec); err != nil {
		return nil, oerr.E(op, oerr.InvalidArgument, err)
	}
	d, err := s.lookup(ctx, op, &spec.Ref)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	if err := d.admitWrite(op); err != nil {
		return nil, err
	}
	return d.create(ctx, op, spec)
}

// create sets a writer up under its own lock, so that a delete which finds the claim cancels it only when it is whole.
func (d *drive) create(ctx context.Context, op string, spec shard.Spec) (shard.Writer, error) {
	key := keyOf(spec.Blob, spec.Index)
	if spec.Length < shard.SegmentLimit {
		w := &recordWriter{d: d, spec: spec, key: key, done: make(chan struct{}), at: time.Now()}
		w.mu.Lock()
		if err := d.claims.take(key, w); err != nil {
			w.mu.Unlock()
			return nil, err
		}
		old, err := d.replaces(ctx, op, &spec)
		if err == nil && d.log.room() < headerSize+int64(spec.Length) {
			err = d.space.check(d.super.SegmentSize) // the committer takes it, once for a whole batch
		}
		w.old = old
		return opened(ctx, w, &w.mu, &w.stop, err)
	}
	w := &fileWriter{d: d, spec: spec, key: key, at: time.Now()}
	w.mu.Lock()
	if err := d.claims.take(key, w); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	old, err := d.replaces(ctx, op, &spec)
	w.initLocked(old)
	if err == nil {
		err = d.space.take(w.size)
		w.reserved = err == nil
	}
	return opened(ctx, w, &w.mu, &w.stop, err)
}

type writer interface {
	shard.Writer
	abortable
}

// opened ends a writer's set-up: it dies with ctx from here on, or at once when err is set. mu is held.
func opened(ctx context.Context, w writer, mu *sync.Mutex, stop *func() bool, err error) (shard.Writer, error) {
	if err == nil && ctx.Done() != nil {
		*stop = context.AfterFunc(ctx, func() {
			w.cancel(oerr.E("store.writer", oerr.KindOf(ctx.Err()), ctx.Err()))
		})
	}
	mu.Unlock()
	if err != nil {
		w.cancel(err)
		return nil, err
	}
	return w, nil
}

// replaces returns the row that a writer of this shard will replace: none, one that a repair may, or one whose file
// is gone. Anything else is Exists.
func (d *drive) replaces(ctx context.Context, op string, spec *shard.Spec) (*row, error) {
	key := keyOf(spec.Blob, spec.Index)
	r, ok, err := d.index.get(key)
	if err != nil || !ok {
		return nil, err
	}
	kind := uint8(rowFile)
	if spec.Length < shard.SegmentLimit {
		kind = rowRecord
	}
	if r.Kind != kind {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "shard %s.%d of %d bytes, expected the %d bytes that the drive has of it", spec.Blob, spec.Index, spec.Length, r.Length)
	}
	if spec.Repair {
		return &r, nil
	}
	if r.Kind == rowFile && !r.Torn {
		gone, err := onDevice(ctx, d, func() (bool, error) {
			f, err := d.fs.Open(shardPath(d.cfg.Path, key), syscall.O_RDONLY)
			if err == nil {
				return false, f.Close()
			}
			return isNotExist(err), nil
		}, nil)
		if err == nil && gone {
			return &r, nil
		}
	}
	return nil, oerr.Errorf(op, oerr.Exists, "shard %s.%d is sealed", spec.Blob, spec.Index)
}

// Read implements shard.Endpoint.
func (s *Store) Read(ctx context.Context, req shard.ReadRequest, dst []byte) ([]uint32, error) {
	d, err := s.lookup(ctx, "store.read", &req.Ref)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	return d.read(ctx, &req, dst)
}

// Stat implements shard.Endpoint. A shard that is not there is StateMissing, not an error.
func (s *Store) Stat(ctx context.Context, ref shard.Ref, verify bool) (shard.Info, error) {
	d, err := s.lookup(ctx, "store.stat", &ref)
	if err != nil {
		return shard.Info{}, err
	}
	defer s.leave()
	return d.stat(ctx, ref, verify)
}

// List implements shard.Endpoint. A zero after is the beginning; max is cut to MaxList.
func (s *Store) List(ctx context.Context, drive ident.Drive, after ident.ID, afterIndex uint8, max int) ([]shard.Info, error) {
	const op = "store.list"
	if max <= 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "list of %d shards", max)
	}
	if err := ctx.Err(); err != nil {
		return nil, oerr.E(op, oerr.KindOf(err), err)
	}
	d, err := s.drive(op, drive)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	var from *rowKey
	if !after.IsZero() {
		k := keyOf(after, afterIndex)
		from = &k
	}
	rows, err := d.page(from, min(max, MaxList))
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	infos := make([]shard.Info, len(rows))
	for i := range rows {
		infos[i] = d.infoOf(rows[i].key, &rows[i].row)
	}
	return infos, nil
}

// Delete implements shard.Endpoint. All refs go into as few group commits as the queue allows.
func (s *Store) Delete(ctx context.Context, refs []shard.Ref) []error {
	errs := make([]error, len(refs))
	waits := make([]chan error, len(refs))
	for i := range refs {
		waits[i], errs[i] = s.startDelete(ctx, &refs[i])
	}
	for i, done := range waits {
		if done == nil {
			continue
		}
		select {
		case errs[i] = <-done:
		case <-ctx.Done():
			errs[i] = oerr.E("store.delete", oerr.KindOf(ctx.Err()), ctx.Err())
		}
	}
	return errs
}

// startDelete queues the delete of one shard; a nil channel means that it is decided already.
func (s *Store) startDelete(ctx context.Context, ref *shard.Ref) (chan error, error) {
	const op = "store.delete"
	d, err := s.lookup(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	if err := d.admitWrite(op); err != nil {
		return nil, err
	}
	key := keyOf(ref.Blob, ref.Index)
	if err := d.claims.takeOver(ctx, key); err != nil {
		return nil, err
	}
	r, ok, err := d.index.get(key)
	if err != nil || !ok {
		d.claims.release(key)
		return nil, err
	}
	x := &deletion{d: d, key: key, old: r, done: make(chan error, 1)}
	if err := d.commit.push(logOp{del: x}); err != nil {
		d.claims.release(key)
		return nil, err
	}
	d.met.deletes.Add(1)
	return x.done, nil
}

// SetMinEpoch makes a drive refuse requests from maps older than epoch with StaleEpoch. It never goes back.
func (s *Store) SetMinEpoch(drive ident.Drive, epoch uint64) error {
	d := s.drives[drive]
	if d == nil {
		return oerr.Errorf("store.epoch", oerr.InvalidArgument, "drive %d is not on this node", drive)
	}
	for {
		old := d.minEpoch.Load()
		if epoch <= old || d.minEpoch.CompareAndSwap(old, epoch) {
			return nil
		}
	}
}

// Fence ends writing to a drive: the cluster decided so.
func (s *Store) Fence(drive ident.Drive, cause error) error {
	d := s.drives[drive]
	if d == nil {
		return oerr.Errorf("store.fence", oerr.InvalidArgument, "drive %d is not on this node", drive)
	}
	d.fence(cause)
	return nil
}

// ReleaseBallast gives the room of the ballast file to whoever needs it; the next Open allocates it again if the drive
// has room then.
func (s *Store) ReleaseBallast(drive ident.Drive) error {
	const op = "store.ballast"
	d, err := s.drive(op, drive)
	if err != nil {
		return err
	}
	defer s.leave()
	if err := d.fs.Remove(ballastPath(d.cfg.Path)); err != nil && !isNotExist(err) {
		return oerr.E(op, oerr.Unavailable, err)
	}
	d.space.refresh()
	return nil
}
