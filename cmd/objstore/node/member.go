package node

import (
	"context"
	"fmt"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

const registerTimeout = 10 * time.Second // one try to tell group 0 something

// startMember makes sure that this node has its replica of group 0, tells group 0 what a founder has to tell, and
// registers this process: its addresses and start id, before it writes anything.
func (n *node) startMember(ctx context.Context) error {
	first := n.folders.drives[0]
	id := host.ReplicaID(first.Drive, first.Incarnation)
	var founders []cluster.Replica
	if first.Drive == 1 { // by convention the log of group 0 begins on drive 1 (cluster.State)
		founders = []cluster.Replica{{ID: id, Node: n.self, Drive: first.Drive}}
	}
	if err := n.replicas.ensure(ctx, 0, id, first.Drive, founders); err != nil {
		return err
	}
	if n.folders.found != nil {
		for _, cmd := range n.folders.found.Commands {
			if err := n.tell(ctx, cmd); err != nil {
				return fmt.Errorf("founding the cluster: %s: %w", cmd.Op, err)
			}
		}
		if err := removeState(first.dir, foundingFile); err != nil {
			return err
		}
	}
	n.background(ctx, n.register)
	return nil
}

// tell proposes a group-0 command until it is in. That it was in already is success.
func (n *node) tell(ctx context.Context, cmd *cluster.Command) error {
	for {
		tctx, cancel := context.WithTimeout(ctx, registerTimeout)
		_, err := n.group0.Exec(tctx, cmd)
		cancel()
		if err == nil || oerr.Is(err, oerr.Exists) {
			return nil
		}
		if !worthAnotherTry(err) {
			return err
		}
		if !pause(ctx, 200*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// register keeps trying until group 0 knows this process. Until then the node is not ready and writes no shard.
func (n *node) register(ctx context.Context) {
	me := n.me
	cmd := &cluster.Command{Op: cluster.OpUpdateNode, RequestID: ident.New(), Node: &me}
	for {
		err := n.checkIdentity()
		if err == nil {
			err = n.tell(ctx, cmd)
		}
		for id := range n.folders.fenced() {
			if err == nil {
				err = n.tellFenced(ctx, id)
			}
		}
		switch {
		case err == nil:
			n.registered.Store(true)
			n.cfg.Log.Info("registered in group 0", "index", n.group0.View().Index)
			return
		case ctx.Err() != nil:
			return
		case !oerr.Is(err, oerr.Unavailable):
			n.fatal(err)
			return
		}
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// checkIdentity compares the folders with what group 0 says of their drives, once this node has read it.
func (n *node) checkIdentity() error {
	v := n.group0.View()
	if v.ClusterID.IsZero() || v.Nodes[n.self] == nil {
		return oerr.Errorf("node.identity", oerr.Unavailable, "group 0 has not been read yet")
	}
	for _, d := range n.folders.drives {
		if err := cluster.CheckAgainstView(d.dir, d.Identity, v); err != nil {
			return err
		}
	}
	return nil
}
