package node

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"time"

	"objstore/cluster"
	"objstore/cluster/pki"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/shard"
	"objstore/shard/tcp"
)

// pool makes a buffer pool that shows in the metrics under this name.
func (n *node) pool(name string, budget int64) *shard.Pool {
	p := shard.NewPool(budget)
	n.pools[name] = p
	n.closing(func() error { p.Close(); return nil })
	return p
}

// startInternode opens the internode port and the clients for others'.
func (n *node) startInternode(context.Context) error {
	creds := n.folders.creds
	var err error
	n.server, err = wire.NewServer(wire.ServerConfig{Self: n.self, TLS: creds.ServerConfig(n.allow), PeerOf: creds.PeerOf,
		Refused: func(reason string, remote net.Addr, err error) {
			n.metrics.ConnectionRefused(reason)
			n.cfg.Log.Debug("internode connection refused", "reason", reason, "remote", remote, "error", err)
		}})
	if err != nil {
		return err
	}
	rpcTLS := func(id ident.Node) *tls.Config { return creds.ClientConfig(id, pki.ProtoRPC) }
	client, err := wire.NewClient(wire.ClientConfig{Self: n.self, Local: n.server, Resolve: n.resolve, TLS: rpcTLS, PeerOf: creds.PeerOf,
		DialTimeout: n.cfg.Settings.DialTimeout})
	if err != nil {
		return err
	}
	if err := n.startShards(client); err != nil {
		return err
	}
	h := n.server.Handle
	n.router.Serve(h)
	n.group0.Serve(h)
	h(wire.MethodPing, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) { return nil, nil })
	h(wire.MethodRaft, wire.RoleNode, n.handleRaft)
	h(wire.MethodSnapshot, wire.RoleNode, n.handleSnapshot)
	h(wire.MethodJoin, wire.RoleNone, n.handleJoin)
	h(wire.MethodAdmin, wire.RoleNode, n.handleStatus)
	h(wire.MethodReplicaStatus, wire.RoleNode, n.handleReplicaStatus)
	h(wire.MethodReplicaChange, wire.RoleNode, n.handleReplicaChange)
	h(wire.MethodDisown, wire.RoleNode, n.handleDisown)
	n.client = client
	n.clients.Store(client)
	n.closing(client.Close)
	l, done := n.listeners["internode"], make(chan struct{})
	go func() { // until the closing below: duties that are ending still need it
		defer close(done)
		if err := n.server.Serve(l); err != nil {
			n.fatal(err)
		}
	}()
	n.closing(func() error {
		err := n.server.Close()
		<-done
		return err
	})
	return nil
}

// startShards sets up shard transfer in both directions.
func (n *node) startShards(client *wire.Client) error {
	creds := n.folders.creds
	tickets := tcp.NewTickets()
	srvCfg := tcp.ServerConfig{}
	cliCfg := tcp.Config{Resolve: n.resolve, PeerOf: creds.PeerOf, Caller: client, DialTimeout: n.cfg.Settings.DialTimeout}
	if n.cfg.Settings.ShardTLS {
		cliCfg.TLS = func(id ident.Node) *tls.Config { return creds.ClientConfig(id, pki.ProtoShard) }
	} else {
		srvCfg.Tickets = tickets
	}
	srv, err := tcp.NewServer(n.store, n.pool("shard_server", n.cfg.Settings.ShardBufferBytes), srvCfg)
	if err != nil {
		return err
	}
	n.shardSrv = srv
	n.server.HandleConn(pki.ProtoShard, srv.ServeConn)
	if !n.cfg.Settings.ShardTLS {
		n.server.HandlePlain(tcp.PlainMagic, srv.ServePlain)
		n.server.Handle(wire.MethodShardTicket, wire.RoleNode, tickets.Handler())
	}
	if n.shards, err = tcp.NewClient(cliCfg); err != nil {
		return err
	}
	n.closing(n.shards.Close)
	n.dialer = newDialer(n.self, n.store, n.shards.Endpoint)
	return nil
}

// handleJoin lets a node in. It is the only method open to a peer without a certificate; the token decides.
func (n *node) handleJoin(ctx context.Context, _ wire.Peer, raw []byte) ([]byte, error) {
	req, err := pki.DecodeJoinRequest(raw)
	if err != nil {
		return nil, err
	}
	reply, err := cluster.Admit(ctx, n.group0, n.folders.creds, time.Now(), req)
	if err != nil {
		n.cfg.Log.Warn("a node was not let in", "request", req.String(), "error", err)
		return nil, err
	}
	n.cfg.Log.Info("a node was let in", "name", req.Name, "node", reply.Node)
	return reply.Encode()
}

// handleDisown: start id, uint64 put number, blob → 1 if this process is not, or no longer, writing the blob, else 0.
func (n *node) handleDisown(_ context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	if len(req) != 40 {
		return nil, oerr.Errorf("node.disown", oerr.InvalidArgument, "request of %d bytes, expected 40", len(req))
	}
	e := n.engines.Load()
	if e == nil {
		return nil, oerr.Errorf("node.disown", oerr.Unavailable, "the node is starting")
	}
	if e.Disowned(ident.ID(req[:16]), binary.LittleEndian.Uint64(req[16:]), ident.ID(req[24:])) {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// disowned asks a gateway process whether it still writes a blob.
func (n *node) disowned(ctx context.Context, to ident.Node, w shard.WriterID, blob ident.ID) (bool, error) {
	req := append(make([]byte, 0, 40), w.StartID[:]...)
	req = append(binary.LittleEndian.AppendUint64(req, w.Put), blob[:]...)
	var reply []byte
	var err error
	if to == n.self {
		reply, err = n.handleDisown(ctx, wire.Peer{}, req)
	} else {
		reply, err = n.client.Call(ctx, to, wire.MethodDisown, req)
	}
	if err != nil {
		return false, err
	}
	return len(reply) == 1 && reply[0] == 1, nil
}
