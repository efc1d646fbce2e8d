package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/shard"
)

// Defaults of ServerConfig.
const (
	DefaultServerIdle  = 5 * time.Minute  // between operations; longer than the client's, so that the client closes
	DefaultStreamIdle  = 10 * time.Minute // between the frames of one write: a slow S3 client
	DefaultFrameLimit  = 10 * time.Second // from a frame's header to its end, and to write an answer: a peer that hangs
	DefaultTicketLimit = 5 * time.Second  // from accept to the ticket
)

// ServerConfig configures a Server. Zero values take the defaults.
type ServerConfig struct {
	Tickets    *Tickets // nil: no plaintext connections
	Idle       time.Duration
	StreamIdle time.Duration
	FrameLimit time.Duration
	// Refused is told, when set, of each connection closed because of what was read from it.
	Refused func(reason string, remote net.Addr, err error)
}

// Server answers shard connections with one node's drives.
type Server struct {
	ep   shard.Endpoint
	pool *shard.Pool
	cfg  ServerConfig
	n    counters
}

// NewServer returns a server of ep. pool is the memory for cells on their way in or out; nothing else may hold buffers
// of it while it waits for one. Its budget must allow two of 1 MiB.
func NewServer(ep shard.Endpoint, pool *shard.Pool, cfg ServerConfig) (*Server, error) {
	if pool.Budget() < 2*maxData {
		return nil, oerr.Errorf("shard.tcp.server", oerr.InvalidArgument, "pool of %d bytes, expected at least %d", pool.Budget(), 2*maxData)
	}
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.Idle, DefaultServerIdle)
	def(&cfg.StreamIdle, DefaultStreamIdle)
	def(&cfg.FrameLimit, DefaultFrameLimit)
	return &Server{ep: ep, pool: pool, cfg: cfg}, nil
}

// Metrics returns a snapshot.
func (s *Server) Metrics() Metrics { return s.n.snapshot() }

// ServeConn serves a TLS connection of a member (wire.Server.HandleConn, wire.ALPNShard) until it ends or ctx does.
func (s *Server) ServeConn(ctx context.Context, c net.Conn, _ wire.Peer) {
	s.serve(ctx, newLink(c))
}

// ServePlain serves a plaintext connection whose magic has been read (wire.Server.HandlePlain), after its ticket.
func (s *Server) ServePlain(ctx context.Context, c net.Conn) {
	l := newLink(c)
	c.SetDeadline(time.Now().Add(DefaultTicketLimit))
	var half [ticketHalf]byte
	if _, err := io.ReadFull(l.br, half[:]); err != nil || s.cfg.Tickets == nil {
		s.refuse(c, "ticket", errors.Join(err, errFrame))
		return
	}
	_, proof, ok := s.cfg.Tickets.take(half)
	if !ok {
		s.refuse(c, "ticket", oerr.Errorf("shard.tcp.serve", oerr.PermissionDenied, "unknown, used or expired ticket"))
		return
	}
	wire.Authenticated(ctx)
	l.proof = proof[:]
	s.serve(ctx, l)
}

func (s *Server) refuse(c net.Conn, reason string, err error) {
	if reason == "ticket" {
		s.n.badTickets.Add(1)
	} else {
		s.n.garbage.Add(1)
	}
	if s.cfg.Refused != nil {
		s.cfg.Refused(reason, c.RemoteAddr(), err)
	}
	c.Close()
}
