package router

import (
	"context"
	"encoding/binary"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

// Replicas finds the replicas of a group that run on this node: none, one, or several on different drives.
type Replicas func(g ident.Group) []host.API

// Reply statuses of MethodPropose and MethodQuery; the rest of the reply depends on them (docs/formats/internode.md).
const (
	statusDone      = 0 // result or answer follows
	statusNotLeader = 1 // uint32 node that leads, 0 unknown
	statusRefused   = 2 // a query was refused: kind byte, text
)

// propose runs a command at whichever local replica leads.
func propose(ctx context.Context, replicas []host.API, g ident.Group, data []byte) (host.Applied, error) {
	err := error(oerr.Errorf("router.propose", oerr.NotLeader, "no replica of group %d on this node", g))
	for _, h := range replicas {
		var a host.Applied
		if a, err = h.Propose(ctx, g, data); !oerr.Is(err, oerr.NotLeader) {
			return a, err
		}
	}
	return host.Applied{}, err
}

// ask runs f over the state of whichever local replica leads, after one ReadIndex.
func ask(ctx context.Context, replicas []host.API, g ident.Group, f func(host.Reader) error) error {
	err := error(oerr.Errorf("router.query", oerr.NotLeader, "no replica of group %d on this node", g))
	for _, h := range replicas {
		if _, err = h.ReadIndex(ctx, g); err == nil {
			return h.View(g, f)
		}
		if !oerr.Is(err, oerr.NotLeader) {
			return err
		}
	}
	return err
}

// leaderAmong returns the leader that the local replicas know, 0 if none does.
func leaderAmong(replicas []host.API, g ident.Group) ident.Node {
	for _, h := range replicas {
		if n := h.Leader(g); n != 0 {
			return n
		}
	}
	return 0
}

// Serve registers the calls that other nodes' routers make.
func (r *Router) Serve(handle func(wire.Method, wire.Role, wire.Handler)) {
	handle(wire.MethodPropose, wire.RoleNode, r.handlePropose)
	handle(wire.MethodQuery, wire.RoleNode, r.handleQuery)
}

func notLeaderReply(replicas []host.API, g ident.Group) []byte {
	return binary.LittleEndian.AppendUint32([]byte{statusNotLeader}, uint32(leaderAmong(replicas, g)))
}

func splitGroup(req []byte) (ident.Group, []byte, error) {
	if len(req) < 4 {
		return 0, nil, oerr.Errorf("router.serve", oerr.InvalidArgument, "request of %d bytes, expected at least 4", len(req))
	}
	return ident.Group(binary.LittleEndian.Uint32(req)), req[4:], nil
}

// handlePropose: uint32 group, command → status, then uint64 log index and result.
func (r *Router) handlePropose(ctx context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	g, body, err := splitGroup(req)
	if err != nil {
		return nil, err
	}
	if g == 0 {
		return nil, oerr.Errorf("router.serve", oerr.InvalidArgument, "group 0 takes cluster commands, not metadata commands")
	}
	// The request buffer dies with this call, but an entry outlives it when the deadline cuts the wait short.
	data := append([]byte(nil), body...)
	replicas := r.deps.Replicas(g)
	a, err := propose(ctx, replicas, g, data)
	if oerr.Is(err, oerr.NotLeader) {
		return notLeaderReply(replicas, g), nil
	}
	if err != nil {
		return nil, err
	}
	reply := make([]byte, 0, 9+len(a.Data))
	reply = binary.LittleEndian.AppendUint64(append(reply, statusDone), a.Index)
	return append(reply, a.Data...), nil
}

// handleQuery: uint32 group, query → status, then the answer.
func (r *Router) handleQuery(ctx context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	g, body, err := splitGroup(req)
	if err != nil {
		return nil, err
	}
	q, err := metadata.DecodeQuery(body)
	if err != nil {
		return nil, err
	}
	replicas := r.deps.Replicas(g)
	var reply []byte
	var refused error
	err = ask(ctx, replicas, g, func(rd host.Reader) error {
		reply, refused = metadata.AskEncoded(rd, q, append(make([]byte, 0, 256), statusDone))
		return nil
	})
	switch {
	case oerr.Is(err, oerr.NotLeader):
		return notLeaderReply(replicas, g), nil
	case err != nil:
		return nil, err
	case refused != nil:
		// A refusal (no such span, …) is an answer, kept apart from "this replica could not answer".
		return append([]byte{statusRefused, byte(oerr.KindOf(refused))}, refused.Error()...), nil
	}
	return reply, nil
}
