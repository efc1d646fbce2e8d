// Package gossip tells which nodes seem to be alive. It wraps hashicorp/memberlist: SWIM over UDP and TCP, encrypted
// with the cluster's keyring and labelled with the cluster id. What it says is a hint and nothing more: it grants
// nothing, moves no data and fences nobody; group 0 and certificates do.
//
// A *Gossip is safe for concurrent use. gossip.go has the life cycle, delegate.go what memberlist calls, log.go its log.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Pace and limits (start). A dead node is noticed after a probe, an indirect probe and a suspicion of
// suspicionMult × log10(n+1) probe intervals: two to four seconds for up to ten nodes.
const (
	probeInterval = 500 * time.Millisecond
	probeTimeout  = 250 * time.Millisecond
	suspicionMult = 3
	gossipPace    = 200 * time.Millisecond
	pushPull      = 15 * time.Second
	tcpTimeout    = 3 * time.Second
	reclaimAfter  = time.Second      // a dead node's name may come back from another address
	rejoinEvery   = 10 * time.Second // seeds that are no members are tried again
	firstJoin     = 500 * time.Millisecond
	leaveTimeout  = 500 * time.Millisecond
	maxSeeds      = 1024
)

// Config of a node's gossip.
type Config struct {
	Cluster   ident.ID
	Node      ident.Node
	StartID   ident.ID // random for each process start
	Bind      string   // IP:PORT; port 0 picks one
	Advertise string   // IP:PORT that others reach; empty is Bind
	Keys      [][]byte // AES keys, the first is the one to encrypt with
	// Seeds returns the gossip addresses of the other members as group 0 has them. It is asked again and again.
	Seeds func() []string
	// OnChange hears of each change, from one goroutine at a time. It must not block and not call Close.
	OnChange func(node ident.Node, alive bool)
	Log      *slog.Logger // memberlist's own log; nil drops it
	// Refused hears of each packet or stream that came from no member. It must not block; nil drops it.
	Refused func()
	// Transport replaces the network in tests.
	Transport memberlist.Transport
}

// Validate returns every problem at once.
func (c Config) Validate() error {
	var errs []error
	if c.Cluster.IsZero() || c.Node == 0 || c.StartID.IsZero() {
		errs = append(errs, fmt.Errorf("cluster %s, node %d, start id %s: none may be zero", c.Cluster, c.Node, c.StartID))
	}
	if _, err := netip.ParseAddrPort(c.Bind); err != nil {
		errs = append(errs, fmt.Errorf("bind address %q: expected IP:PORT", c.Bind))
	}
	if c.Advertise != "" {
		if _, _, err := splitHostPort(c.Advertise); err != nil {
			errs = append(errs, fmt.Errorf("advertised address %q: expected HOST:PORT", c.Advertise))
		}
	}
	if len(c.Keys) == 0 {
		errs = append(errs, errors.New("no key: gossip is always encrypted"))
	}
	for i, k := range c.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			errs = append(errs, fmt.Errorf("key %d of %d bytes, expected 16, 24 or 32", i, len(k)))
		}
	}
	if c.Seeds == nil {
		errs = append(errs, errors.New("no seeds"))
	}
	if len(errs) > 0 {
		return oerr.E("gossip.config", oerr.InvalidArgument, errors.Join(errs...))
	}
	return nil
}

// Gossip is this node's part of the gossip.
type Gossip struct {
	cfg    Config
	list   *memberlist.Memberlist
	cancel context.CancelFunc
	done   chan struct{} // closed when the joining goroutine has ended
	once   sync.Once
	err    error
	mu     struct {
		sync.Mutex
		nodes map[ident.Node]peer
	}
}

// peer is what was last heard of a node.
type peer struct {
	alive   bool
	startID ident.ID
	addr    string
}

// Start binds the port and begins to look for the other members in the background.
func Start(cfg Config) (*Gossip, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := &Gossip{cfg: cfg, done: make(chan struct{})}
	g.mu.nodes = map[ident.Node]peer{}
	conf, err := g.memberlistConfig()
	if err != nil {
		return nil, oerr.E("gossip.start", oerr.InvalidArgument, err)
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, oerr.Errorf("gossip.start", oerr.Internal, "gossip on %s: %w", cfg.Bind, err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ends in Close
	g.cancel = cancel
	go g.join(ctx)
	return g, nil
}

func (g *Gossip) memberlistConfig() (*memberlist.Config, error) {
	cfg := g.cfg
	ring, err := memberlist.NewKeyring(cfg.Keys, cfg.Keys[0])
	if err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	bind := netip.MustParseAddrPort(cfg.Bind) // validated
	c.BindAddr, c.BindPort, c.AdvertisePort = bind.Addr().String(), int(bind.Port()), int(bind.Port())
	if cfg.Advertise != "" {
		host, port, err := splitHostPort(cfg.Advertise)
		if err != nil {
			return nil, err
		}
		if c.AdvertiseAddr, err = resolve(host); err != nil {
			return nil, err
		}
		c.AdvertisePort = port
	}
	c.Name = memberName(cfg.Node)
	c.Label = "objstore/" + cfg.Cluster.String()
	c.Keyring = ring
	c.Transport = cfg.Transport
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult = probeInterval, probeTimeout, suspicionMult
	c.GossipInterval, c.PushPullInterval, c.TCPTimeout = gossipPace, pushPull, tcpTimeout
	c.DeadNodeReclaimTime = reclaimAfter
	c.EnableCompression = false // messages are tiny
	d := delegate{g}
	c.Delegate, c.Events, c.Alive = d, d, d
	c.Logger = log.New(logWriter{to: cfg.Log, refused: cfg.Refused}, "", 0)
	return c, nil
}

// Addr returns the address others reach this node's gossip at.
func (g *Gossip) Addr() string { return g.list.LocalNode().Address() }

// Alive says what gossip thinks of a node. known is false for a node it has not heard of: nothing follows from that.
func (g *Gossip) Alive(node ident.Node) (alive, known bool) {
	if node == g.cfg.Node {
		return true, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.mu.nodes[node]
	return p.alive, ok
}

// StartID returns the start id that a node's newest gossip carries.
func (g *Gossip) StartID(node ident.Node) (ident.ID, bool) {
	if node == g.cfg.Node {
		return g.cfg.StartID, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.mu.nodes[node]
	return p.startID, ok
}

// join contacts the seeds until all of them are members, and looks again from time to time: members that lost sight of
// each other for long give up by themselves.
func (g *Gossip) join(ctx context.Context) {
	defer close(g.done)
	wait := firstJoin
	for {
		if missing := g.missingSeeds(); len(missing) > 0 {
			_, _ = g.list.Join(missing) // memberlist logs why; the next round tries again
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, rejoinEvery)
	}
}

func (g *Gossip) missingSeeds() []string {
	seeds := g.cfg.Seeds()
	seeds = seeds[:min(len(seeds), maxSeeds)]
	have := map[string]bool{g.Addr(): true}
	g.mu.Lock()
	for _, p := range g.mu.nodes {
		if p.alive {
			have[p.addr] = true
		}
	}
	g.mu.Unlock()
	var missing []string
	for _, s := range seeds {
		if !have[s] {
			missing = append(missing, s)
		}
	}
	return missing
}

// Close says good-bye to the others, stops and waits. It may be called more than once.
func (g *Gossip) Close() error {
	g.once.Do(func() {
		g.cancel()
		<-g.done
		_ = g.list.Leave(leaveTimeout) // nobody heard it: they will notice
		if err := g.list.Shutdown(); err != nil {
			g.err = oerr.E("gossip.close", oerr.Internal, err)
		}
	})
	return g.err
}

func memberName(n ident.Node) string { return fmt.Sprintf("node-%d", n) }

func splitHostPort(s string) (string, int, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", s)
	}
	return host, int(n), nil
}

// resolve returns an IP address for a host: memberlist advertises addresses, not names.
func resolve(host string) (string, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tcpTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", err
	}
	return ips[0].Unmap().String(), nil
}
