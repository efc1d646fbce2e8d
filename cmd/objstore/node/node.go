package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"objstore/admin"
	"objstore/cluster"
	"objstore/cluster/gossip"
	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata/host"
	"objstore/metadata/router"
	"objstore/object"
	"objstore/repair"
	"objstore/shard"
	"objstore/shard/store"
	"objstore/shard/tcp"
)

// shutdownExtra is how long everything but the requests in flight may take to stop.
const shutdownExtra = 3 * time.Second

// Refused is an error about what the operator gave: flags, folders or addresses. Nothing was started.
type Refused struct{ error }

// Unwrap returns the reason.
func (r Refused) Unwrap() error { return r.error }

// node is everything one process runs.
type node struct {
	cfg     Config
	self    ident.Node
	start   ident.ID // of this process
	me      cluster.Node
	folders *folders

	machine  *cluster.Machine
	group0   *router.Group0
	replicas *replicas
	router   *router.Router
	server   *wire.Server
	client   *wire.Client                // for who runs after startInternode
	clients  atomic.Pointer[wire.Client] // client, for Raft, which runs before
	store    *store.Store
	shards   *tcp.Client
	shardSrv *tcp.Server
	dialer   *dialer
	engine   *object.Engine                // for who runs after startEngine
	engines  atomic.Pointer[object.Engine] // engine, for other nodes' calls
	repair   *repair.Worker
	gossip   atomic.Pointer[gossip.Gossip]
	repairs  atomic.Pointer[repair.Worker] // repair, for who runs before it is there
	pools    map[string]*shard.Pool
	registry *prometheus.Registry
	metrics  *admin.Metrics

	s3Server, adminServer *http.Server
	listeners             map[string]net.Listener

	broken     atomic.Bool // a step of the start will never return: nothing that it stands on may be closed
	registered atomic.Bool // group 0 knows this process's start id
	ready      readiness
	pending    atomic.Int64 // repair rows of the groups led here, as last counted
	lost       atomic.Int64

	wg    sync.WaitGroup
	fail  chan error // what ends the process
	stop  context.CancelFunc
	close []func() error // in reverse order of the start
}

// Run runs a node until ctx ends (nil) or it fails.
func Run(ctx context.Context, cfg Config) error {
	n := &node{cfg: cfg, start: ident.New(), fail: make(chan error, 4), pools: map[string]*shard.Pool{}, listeners: map[string]net.Listener{}}
	n.ready.changed = make(chan struct{}, 1)
	n.me = cluster.Node{Name: cfg.Name, StartID: n.start, S3: advertise(cfg.S3, cfg.Join), Admin: advertise(cfg.Admin, cfg.Join),
		Internode: advertise(cfg.Internode, cfg.Join), Gossip: advertise(cfg.Gossip, cfg.Join)}
	err := n.run(ctx)
	down := make(chan error, 1)
	go func() { down <- n.shutdown() }()
	limit := time.NewTimer(cfg.Settings.ShutdownTimeout + shutdownExtra)
	defer limit.Stop()
	select {
	case derr := <-down:
		return errors.Join(err, derr)
	case <-limit.C: // a store that failed cannot be closed; the process ends now and takes it along
		return errors.Join(err, errors.New("something did not stop in time"))
	}
}

func (n *node) run(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	n.stop = cancel
	for _, step := range []struct {
		name string
		f    func(context.Context) error
	}{
		{"self-test", func(context.Context) error { return erasure.SelfTest() }},
		{"metrics", n.startMetrics},
		{"listen", n.listen}, // before anything is written: a port in use costs nothing
		{"folders", n.startFolders},
		{"drives", n.startDrives},
		{"metadata", n.startMetadata},
		{"internode", n.startInternode},
		{"founding", n.startMember},
		{"gossip", n.startGossip},
		{"engine", n.startEngine},
		{"edges", n.startEdges},
		{"duties", n.startDuties},
	} {
		if err := n.step(run, step.f); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	select {
	case <-ctx.Done():
		n.cfg.Log.Info("stopping")
		return nil
	case err := <-n.fail:
		return err
	}
}

// step runs one step of the start. A store that finds its drive damaged calls fatal and never comes back.
func (n *node) step(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			select {
			case err = <-n.fail:
			default:
			}
		}
		return err
	case err := <-n.fail:
		n.broken.Store(true)
		return err
	}
}

// fatal ends the process by design: its drive can no longer be trusted with metadata.
func (n *node) fatal(err error) {
	select {
	case n.fail <- err:
	default: // it is ending already
	}
}

// background runs a duty until the node stops.
func (n *node) background(ctx context.Context, f func(context.Context)) { n.wg.Go(func() { f(ctx) }) }

// closing registers what shutdown does, last registered first.
func (n *node) closing(f func() error) { n.close = append(n.close, f) }

// shutdown takes everything down: edges first, so that nothing new comes in, then duties, then what they stood on.
func (n *node) shutdown() error {
	var errs []error
	grace, cancel := context.WithTimeout(context.Background(), n.cfg.Settings.ShutdownTimeout)
	defer cancel()
	for _, s := range []*http.Server{n.s3Server, n.adminServer} {
		if s != nil && s.Shutdown(grace) != nil {
			errs = append(errs, s.Close())
		}
	}
	n.stop()
	if n.broken.Load() {
		return errors.Join(errs...)
	}
	n.wg.Wait()
	for i := len(n.close) - 1; i >= 0; i-- {
		errs = append(errs, n.close[i]())
	}
	for _, l := range n.listeners {
		_ = l.Close() // closed by its server already, unless the start failed before
	}
	return errors.Join(errs...)
}

func (n *node) listen(context.Context) error {
	for name, addr := range map[string]string{"s3": n.cfg.S3, "admin": n.cfg.Admin, "internode": n.cfg.Internode} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return Refused{fmt.Errorf("--%s: %w", name, err)}
		}
		n.listeners[name] = l
	}
	return nil
}

func (n *node) startFolders(ctx context.Context) error {
	f, err := openFolders(ctx, &n.cfg, n.me)
	if err != nil {
		return Refused{err}
	}
	n.folders, n.self = f, f.creds.Node
	n.me.ID = n.self
	n.closing(func() error { f.close(); return nil })
	if f.root != nil {
		n.showRoot()
	}
	n.cfg.Log.Info("node", "id", n.self, "cluster", f.creds.Cluster, "drives", len(f.drives))
	return nil
}

// startMetadata opens the Raft hosts; group 0's view is what its replica here has applied.
func (n *node) startMetadata(context.Context) error {
	n.machine = cluster.NewMachine(cluster.MachineConfig{
		OnView: func(v *cluster.View) { n.group0.Publish(v); n.viewChanged(v) },
		Read: func(f func(host.Reader) error) error {
			if hosts := n.replicas.hosts(); len(hosts) > 0 {
				return hosts[0].View(0, f)
			}
			return oerr.Errorf("node.group0", oerr.Unavailable, "the node is starting") // loaded below
		},
	})
	n.group0 = router.NewGroup0(router.Group0Deps{Self: n.self, Caller: lateCaller{n}, Replica: func() host.API { return n.replicas.hosts()[0] }}, cluster.NewState().View())
	n.replicas = newReplicas()
	r := n.replicas
	n.closing(r.close)
	if err := r.open(n); err != nil {
		return err
	}
	n.router = router.New(router.Deps{Self: n.self, Source: n.group0, Replicas: r.of, Caller: lateCaller{n}, Window: n.cfg.Settings.RetryDeadline})
	if r.has(0) {
		if err := r.hosts()[0].View(0, func(rd host.Reader) error {
			_, err := n.machine.Load(rd)
			return err
		}); err != nil {
			return fmt.Errorf("group 0 of this node cannot be read: %w", err)
		}
	}
	return nil
}

// lateCaller lets components be made before the client is.
type lateCaller struct{ n *node }

func (c lateCaller) Call(ctx context.Context, to ident.Node, m wire.Method, req []byte) ([]byte, error) {
	if client := c.n.clients.Load(); client != nil {
		return client.Call(ctx, to, m, req)
	}
	return nil, oerr.Errorf("node.call", oerr.Unavailable, "the node is starting")
}

func (c lateCaller) Send(to ident.Node, m wire.Method, msg []byte) bool {
	client := c.n.clients.Load()
	return client != nil && client.Send(to, m, msg)
}

// viewChanged hears of every new view. It must not block.
func (n *node) viewChanged(*cluster.View) {
	select {
	case n.ready.changed <- struct{}{}:
	default:
	}
}

// resolve gives a node's internode address: from group 0, else what the join said.
func (n *node) resolve(id ident.Node) (string, bool) {
	if nd := n.group0.View().Nodes[id]; nd != nil && !nd.Removed {
		return nd.Internode, true
	}
	addr, ok := n.folders.seeds[id]
	return addr, ok
}

// allow says whether a node may connect: group 0 has not removed it.
func (n *node) allow(id ident.Node) bool {
	nd := n.group0.View().Nodes[id]
	return nd == nil || !nd.Removed
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// worthAnotherTry says whether a join may succeed later.
func worthAnotherTry(err error) bool {
	switch oerr.KindOf(err) {
	case oerr.Unavailable, oerr.DeadlineExceeded, oerr.OutcomeUnknown, oerr.NotLeader, oerr.Busy:
		return true
	}
	return false
}
