package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Host drives all replicas of one metadata drive. Its methods may be called concurrently.
//
// Goroutines, all ended by Close: the loop (owns the core), the log writer, the applier, the hasher, the maintainer,
// and one for each snapshot being sent.
type Host struct {
	cfg      Config
	metrics  metrics
	stores   *stores
	core     *core // the loop owns it
	applier  *applier
	receiver *receiver
	replicas atomic.Pointer[map[ident.Group]*replica]
	failed   atomic.Bool

	in      inputs
	wake    chan struct{} // has room for one
	writeCh chan []*appendTask
	applyCh chan []*applyTask
	hashCh  chan hashJob
	flushed chan struct{} // has room for one
	press   atomic.Bool

	// Owned by the loop.
	pendingAppends []*appendTask
	pendingApplies []*applyTask
	writing        bool
	applying       bool
	snapshotsOut   int
	barriers       []barrier
	encode         map[ident.Node]*nodeBuffer

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	closed chan struct{}
	err    error // of Close

	admin sync.Mutex // creating and destroying replicas, one at a time
}

var _ API = (*Host)(nil)

// Open opens the stores of a drive and starts every replica that they hold.
func Open(cfg Config) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	h := &Host{
		cfg: cfg, wake: make(chan struct{}, 1), writeCh: make(chan []*appendTask, 1), applyCh: make(chan []*applyTask, 1),
		hashCh: make(chan hashJob, 1), flushed: make(chan struct{}, 1), closed: make(chan struct{}),
		encode: make(map[ident.Node]*nodeBuffer),
	}
	h.in.init()
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.core = newCore(&h.cfg, &h.metrics)
	h.core.nowMS = cfg.Now()
	h.replicas.Store(&map[ident.Group]*replica{})
	var err error
	h.stores, err = openStores(&h.cfg, storeHooks{fatal: h.fail, flushed: func() { signal(h.flushed) }})
	if err != nil {
		h.cancel()
		return nil, err
	}
	h.applier = &applier{state: h.stores.state, metrics: &h.metrics, hash: h.enqueueHash}
	h.receiver = &receiver{fs: cfg.FS, dir: h.stores.stageDir, state: h.stores.state, now: cfg.Now}
	if err := h.startAll(); err != nil {
		h.cancel()
		return nil, errors.Join(err, h.stores.close())
	}
	h.wg.Go(h.loop)
	h.wg.Go(h.runWriter)
	h.wg.Go(h.runApplier)
	h.wg.Go(h.runHasher)
	h.wg.Go(h.maintain)
	return h, nil
}

func (h *Host) startAll() error {
	groups, err := h.stores.groups()
	if err != nil {
		return err
	}
	for g, id := range groups {
		if id.destroyed {
			continue
		}
		log, err := h.stores.log.load(g)
		if err != nil {
			return fmt.Errorf("host: group %d: %w", g, err)
		}
		meta, err := h.stores.state.meta(g)
		if err != nil {
			return fmt.Errorf("host: group %d: %w", g, err)
		}
		r, err := h.core.start(g, id.replica, log, meta)
		if err != nil {
			return fmt.Errorf("host: group %d: %w", g, err)
		}
		r.ap.meta = meta
		h.publish(g, r)
	}
	return nil
}

// publish makes a replica findable, or not any more when r is nil.
func (h *Host) publish(g ident.Group, r *replica) {
	old := *h.replicas.Load()
	m := make(map[ident.Group]*replica, len(old)+1)
	for k, v := range old {
		m[k] = v
	}
	if r == nil {
		delete(m, g)
	} else {
		m[g] = r
	}
	h.replicas.Store(&m)
}

func (h *Host) replica(g ident.Group) *replica { return (*h.replicas.Load())[g] }

// fail is called when a store cannot write any more.
func (h *Host) fail(err error) {
	if h.failed.Swap(true) {
		return
	}
	h.cancel()
	h.cfg.Fatal(fmt.Errorf("host: drive %s: %w", h.cfg.Dir, err))
}

// Close stops everything, flushes the state and closes the stores. Calls under way get oerr.Closed.
func (h *Host) Close() error {
	h.once.Do(func() {
		close(h.closed)
		h.cancel()
		h.wg.Wait()
		select {
		case j := <-h.hashCh: // handed over while the hasher ended
			_ = j.it.Close() // nothing was read
		default:
		}
		for _, r := range *h.replicas.Load() { // views end before the stores do
			r.shared.view.Lock()
			r.shared.view.Unlock() //nolint:staticcheck // waiting is all that is wanted
		}
		h.receiver.close()
		h.err = h.stores.close()
	})
	return h.err
}

// Propose implements API. data is handed over.
func (h *Host) Propose(ctx context.Context, g ident.Group, data []byte) (Applied, error) {
	const op = "host.propose"
	if len(data) > h.cfg.Limits.MaxEntry {
		return Applied{}, oerr.Errorf(op, oerr.InvalidArgument, "entry of %d bytes, at most %d are allowed", len(data), h.cfg.Limits.MaxEntry)
	}
	if err := h.leads(op, g); err != nil {
		return Applied{}, err
	}
	w := newWaiter()
	if err := h.in.propose(&h.cfg, g, proposal{data, w}); err != nil {
		h.metrics.rejected.Add(1)
		return Applied{}, err
	}
	signal(h.wake)
	select {
	case o := <-w.ch:
		return o.applied, o.err
	case <-ctx.Done():
		return Applied{}, oerr.Errorf(op, oerr.OutcomeUnknown, "group %d: %w before the outcome was known", g, ctx.Err())
	}
}

// ReadIndex implements API.
func (h *Host) ReadIndex(ctx context.Context, g ident.Group) (uint64, error) {
	const op = "host.read_index"
	if err := h.leads(op, g); err != nil {
		return 0, err
	}
	w := newWaiter()
	if err := h.in.read(g, w); err != nil {
		h.metrics.rejected.Add(1)
		return 0, err
	}
	signal(h.wake)
	select {
	case o := <-w.ch:
		return o.applied.Index, o.err
	case <-ctx.Done():
		return 0, oerr.Wrap(op, ctx.Err())
	}
}

// leads answers at once what the loop would answer: this replica does not lead.
func (h *Host) leads(op string, g ident.Group) error {
	if h.failed.Load() {
		return oerr.Errorf(op, oerr.Unavailable, "the drive's log store failed")
	}
	r := h.replica(g)
	if r == nil {
		return oerr.Errorf(op, oerr.NotLeader, "group %d has no replica here", g)
	}
	if r.shared.stopped.Load() != nil {
		return r.stoppedError(op)
	}
	if !r.shared.isLeader.Load() {
		return oerr.Errorf(op, oerr.NotLeader, "group %d: replica %#x on node %d leads", g, r.shared.leadID.Load(), r.shared.leadOn.Load())
	}
	return nil
}

// View implements API.
func (h *Host) View(g ident.Group, f func(Reader) error) error {
	r := h.replica(g)
	if r == nil {
		return oerr.Errorf("host.view", oerr.Unavailable, "group %d has no replica here", g)
	}
	if r.shared.stopped.Load() != nil {
		return r.stoppedError("host.view")
	}
	r.shared.view.RLock()
	defer r.shared.view.RUnlock()
	select {
	case <-h.closed:
		return oerr.Errorf("host.view", oerr.Closed, "the host was closed")
	default:
	}
	snap := h.stores.state.db.NewSnapshot()
	rd := newReader(snap, g)
	err := f(&rd)
	return errors.Join(err, rd.release(), snap.Close())
}

// Leader implements API.
func (h *Host) Leader(g ident.Group) ident.Node {
	if r := h.replica(g); r != nil {
		return ident.Node(r.shared.leadOn.Load())
	}
	return 0
}

// AppliedIndex returns how far the group is applied and visible here.
func (h *Host) AppliedIndex(g ident.Group) uint64 {
	if r := h.replica(g); r != nil {
		return r.shared.applied.Load()
	}
	return 0
}

// Status implements API. Commit, Last and Progress may be one tick old.
func (h *Host) Status() []GroupStatus {
	m := *h.replicas.Load()
	out := make([]GroupStatus, 0, len(m))
	for _, r := range m {
		s := *r.shared.status.Load()
		s.Applied = r.shared.applied.Load()
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b GroupStatus) int { return cmp.Compare(a.Group, b.Group) })
	return out
}

// HandleRaft takes a batch of messages from a node. The batch may be reused afterwards. On a node with several hosts
// every host gets every batch and keeps what is for its replicas.
func (h *Host) HandleRaft(batch []byte) error {
	br, err := readBatch(batch)
	if err != nil {
		h.metrics.badBatches.Add(1)
		return err
	}
	if br.from == 0 || !br.more() {
		return nil
	}
	if !h.in.batch(&h.cfg, slices.Clone(batch)) {
		h.metrics.rejected.Add(1)
		return oerr.Errorf("host.raft", oerr.Busy, "%d bytes of messages wait already", h.cfg.Limits.QueueBytes)
	}
	signal(h.wake)
	return nil
}

// HandleSnapshot takes a chunk of a snapshot, and after the last one waits until it is installed. The chunk may be
// reused afterwards.
func (h *Host) HandleSnapshot(ctx context.Context, chunk []byte) error {
	st, err := h.receiver.take(chunk)
	if err != nil || st == nil {
		return err
	}
	defer h.receiver.release(st)
	if err := h.in.control(func() { h.core.snapshotStaged(st) }); err != nil {
		st.finish(err)
		return err
	}
	signal(h.wake)
	select {
	case err := <-st.done:
		return err
	case <-ctx.Done():
		return oerr.Wrap("host.snapshot", ctx.Err())
	case <-h.ctx.Done():
		return oerr.Errorf("host.snapshot", oerr.Closed, "the host was closed")
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one is there already
	}
}

// hashJob is rows to hash as of an index.
type hashJob struct {
	r     *replica
	index uint64
	it    *pebble.Iterator
}

// enqueueHash hands rows to the hasher. When it is busy, this replica says nothing about this index.
func (h *Host) enqueueHash(r *replica, index uint64, it *pebble.Iterator) {
	select {
	case h.hashCh <- hashJob{r, index, it}:
	default:
		_ = it.Close() // nothing was read
	}
}

func (h *Host) runHasher() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case j := <-h.hashCh:
			sum, err := hashRows(j.it, h.ctx.Done())
			if err != nil {
				continue // unknown: a replica that cannot read its rows finds out when it needs them
			}
			if h.in.control(func() { h.core.hashComputed(j.r, hashAt{j.index, sum}) }) == nil {
				signal(h.wake)
			}
		}
	}
}
