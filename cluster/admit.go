package cluster

import (
	"context"
	"time"

	"objstore/cluster/pki"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Init returns the first command of a new cluster. The CA key in it is sealed with sealKey, which stands only in the
// nodes' credential files.
func Init(ca *pki.CA, sealKey, gossipKey []byte, expect int, accessKey, secret string) (*Command, error) {
	const op = "cluster.init"
	key, err := ca.KeyDER()
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	sealed, err := pki.Seal(sealKey, ca.Cluster, key)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	return &Command{
		Op: OpInit, RequestID: ident.New(), ClusterID: ca.Cluster, Format: FormatVersion, Expect: expect, AccessKey: accessKey, Secret: secret,
		CACert: ca.Cert.Raw, CAKey: sealed, GossipKey: gossipKey,
	}, nil
}

// NewJoinToken makes a one-time token, valid for ttl by the leader's clock, which is taken to be about now.
func NewJoinToken(ctx context.Context, src Source, now time.Time, ttl time.Duration) (pki.Token, error) {
	const op = "cluster.new_token"
	cert := src.View().Secrets().CACert
	if len(cert) == 0 {
		return pki.Token{}, oerr.Errorf(op, oerr.Unavailable, "this node has not read group 0 yet")
	}
	t := pki.NewToken(cert)
	if _, err := exec(ctx, src, &Command{Op: OpAddToken, Token: t.Hash(), Expires: now.Add(ttl).UnixMilli()}); err != nil {
		return pki.Token{}, oerr.Wrap(op, err)
	}
	return t, nil
}

// Admit lets a node in: group 0 checks and uses up its token and hands out numbers, then its certificate is made. Asked
// again with the same request it gives the same numbers.
func Admit(ctx context.Context, src Source, creds *pki.Credentials, now time.Time, req *pki.JoinRequest) (*pki.JoinReply, error) {
	const op = "cluster.admit"
	if err := pki.CheckCSR(req.CSR); err != nil { // before the token is used up
		return nil, oerr.Wrap(op, err)
	}
	v, err := src.Sync(ctx)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	sec := v.Secrets()
	caKey, err := pki.Unseal(creds.SealKey, v.ClusterID, sec.CAKey)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	ca, err := pki.ParseCA(v.ClusterID, sec.CACert, caKey)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	reply := &pki.JoinReply{ClusterID: v.ClusterID, CACert: sec.CACert, SealKey: creds.SealKey, GossipKey: sec.GossipKey}
	res, err := exec(ctx, src, &Command{
		Op: OpAddNode, RequestID: req.StepID(0), Token: pki.HashSecret(req.Secret),
		Node: &Node{Name: req.Name, S3: req.S3, Admin: req.Admin, Internode: req.Internode, Gossip: req.Gossip, StartID: req.StartID},
	})
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	reply.Node = res.Node
	for i, d := range req.Drives {
		res, err := exec(ctx, src, &Command{
			Op: OpAddDrive, RequestID: req.StepID(i + 1),
			Drive: &Drive{Node: reply.Node, UUID: d.UUID, Path: d.Path, Capacity: d.Capacity},
		})
		if err != nil {
			return nil, oerr.Wrap(op, err)
		}
		reply.Drives = append(reply.Drives, res.Drive)
	}
	if reply.Cert, err = pki.IssueNode(ca, reply.Node, req.CSR, now); err != nil {
		return nil, oerr.Wrap(op, err)
	}
	fillMembers(reply, src.View())
	return reply, nil
}

// fillMembers tells the joiner who runs group 0 and where.
func fillMembers(reply *pki.JoinReply, v *View) {
	for _, r := range v.Groups[0].Replicas {
		reply.Members = append(reply.Members, pki.JoinMember{Replica: r.ID, Node: r.Node, Drive: r.Drive, Learner: r.Learner})
	}
	for _, id := range sortedKeys(v.Nodes) {
		if n := v.Nodes[id]; !n.Removed && id != reply.Node {
			reply.Nodes = append(reply.Nodes, pki.JoinNode{Node: id, Internode: n.Internode, Gossip: n.Gossip})
		}
	}
}
