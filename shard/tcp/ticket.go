package tcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

// PlainMagic begins a plaintext shard connection (wire.Server.HandlePlain); the first half of a ticket follows.
const PlainMagic = "objshrd1"

// Limits of tickets.
const (
	ticketHalf     = 32 // bytes: the client shows the first half, the server answers with the second
	ticketSize     = 2 * ticketHalf
	ticketLife     = 30 * time.Second
	ticketUse      = 20 * time.Second // the client does not show one older than this
	ticketBatch    = 16               // in one call
	ticketsPerNode = 512
)

// Tickets gives out one-time tickets for plaintext connections and takes them back. A ticket is bound to the node that
// asked for it over mutual TLS, is valid for 30 s and once.
type Tickets struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		open  map[[ticketHalf]byte]ticket
		count map[ident.Node]int
	}
}

type ticket struct {
	node  ident.Node
	proof [ticketHalf]byte
	until time.Time
}

// NewTickets returns an empty set.
func NewTickets() *Tickets {
	t := &Tickets{now: time.Now}
	t.mu.open = map[[ticketHalf]byte]ticket{}
	t.mu.count = map[ident.Node]int{}
	return t
}

// Handler answers wire.MethodShardTicket: the request is the number of tickets, the reply is the tickets.
func (t *Tickets) Handler() wire.Handler {
	return func(_ context.Context, p wire.Peer, req []byte) ([]byte, error) {
		if len(req) != 1 || req[0] == 0 || req[0] > ticketBatch {
			return nil, oerr.Errorf("shard.tcp.ticket", oerr.InvalidArgument, "read request % x, expected one byte from 1 to %d", req, ticketBatch)
		}
		return t.issue(p.Node, int(req[0]))
	}
}

func (t *Tickets) issue(node ident.Node, n int) ([]byte, error) {
	out := make([]byte, n*ticketSize)
	rand.Read(out)
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.count[node]+n > ticketsPerNode {
		t.expireLocked(now)
	}
	if t.mu.count[node]+n > ticketsPerNode {
		return nil, oerr.Errorf("shard.tcp.ticket", oerr.Busy, "node %d has %d unused tickets", node, t.mu.count[node])
	}
	for i := range n {
		b := out[i*ticketSize:]
		t.mu.open[[ticketHalf]byte(b)] = ticket{node, [ticketHalf]byte(b[ticketHalf:]), now.Add(ticketLife)}
	}
	t.mu.count[node] += n
	return out, nil
}

func (t *Tickets) expireLocked(now time.Time) {
	for k, v := range t.mu.open {
		if now.After(v.until) {
			t.dropLocked(k, v)
		}
	}
}

func (t *Tickets) dropLocked(k [ticketHalf]byte, v ticket) {
	delete(t.mu.open, k)
	if t.mu.count[v.node]--; t.mu.count[v.node] == 0 {
		delete(t.mu.count, v.node)
	}
}

// take consumes a ticket. The lookup is by a 256-bit random value: how long it takes tells nothing useful.
func (t *Tickets) take(half [ticketHalf]byte) (node ident.Node, proof [ticketHalf]byte, ok bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.mu.open[half]
	if !ok {
		return 0, proof, false
	}
	t.dropLocked(half, v)
	return v.node, v.proof, !now.After(v.until)
}

// wallet is the client's store of tickets for one node.
type wallet struct {
	mu  sync.Mutex
	has [][ticketSize]byte
	got time.Time
}

// ticket takes one, fetching a batch when there is none that is fresh.
func (w *wallet) ticket(ctx context.Context, caller wire.Caller, node ident.Node, now time.Time) ([ticketSize]byte, error) {
	w.mu.Lock()
	if n := len(w.has); n > 0 && now.Sub(w.got) < ticketUse {
		t := w.has[n-1]
		w.has = w.has[:n-1]
		w.mu.Unlock()
		return t, nil
	}
	w.mu.Unlock()
	b, err := caller.Call(ctx, node, wire.MethodShardTicket, []byte{ticketBatch})
	if err != nil {
		return [ticketSize]byte{}, err
	}
	if len(b) != ticketBatch*ticketSize {
		return [ticketSize]byte{}, oerr.Errorf("shard.tcp.ticket", oerr.Unavailable, "node %d: read %d bytes of tickets, expected %d", node, len(b), ticketBatch*ticketSize)
	}
	fresh := make([][ticketSize]byte, ticketBatch)
	for i := range fresh {
		fresh[i] = [ticketSize]byte(b[i*ticketSize:])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.has, w.got = fresh[1:], now
	return fresh[0], nil
}

func (w *wallet) clear() {
	w.mu.Lock()
	w.has = nil
	w.mu.Unlock()
}

// checkProof reads what the server sends first on a plaintext connection: the second half of the ticket, which only
// the node that gave it out can know.
func (l *link) checkProof() error {
	var b [ticketHalf]byte
	if _, err := io.ReadFull(l.br, b[:]); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(b[:], l.proof) != 1 {
		return fmt.Errorf("%w: the server does not know our ticket", errFrame)
	}
	l.proof = nil
	return nil
}
