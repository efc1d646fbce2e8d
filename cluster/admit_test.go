package cluster

import (
	"context"
	"reflect"
	"testing"
	"time"

	"objstore/cluster/pki"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// founder is a one-node cluster with real keys.
func founder(t *testing.T) (stateSource, *pki.Credentials) {
	t.Helper()
	ca, err := pki.NewCA(testID(1), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	seal := pki.NewSealKey()
	cmd, err := Init(ca, seal, make([]byte, 32), 2, "root-access", "root-secret-value")
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(t)
	d.ok(*cmd)
	d.join(1, 1<<40)
	key, csr, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.IssueNode(ca, 1, csr, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	creds, err := pki.NewCredentials(ca.Cluster, 1, ca.Cert.Raw, cert, key, seal, nil)
	if err != nil {
		t.Fatal(err)
	}
	return stateSource{d, newFakeRaft(1, d.s)}, creds
}

func TestANodeIsAdmittedOnceForEachToken(t *testing.T) {
	src, creds := founder(t)
	ctx := t.Context()
	tok, err := NewJoinToken(ctx, src, time.UnixMilli(1000), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, csr, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	n := testNode(2)
	req := pki.NewJoinRequest(tok, csr)
	req.Name, req.S3, req.Admin, req.Internode, req.Gossip, req.StartID = n.Name, n.S3, n.Admin, n.Internode, n.Gossip, n.StartID
	req.Drives = []pki.JoinDrive{{UUID: testID(31), Path: "/d1", Capacity: 1 << 40}, {UUID: testID(32), Path: "/d2", Capacity: 1 << 41}}
	wire, err := req.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := pki.DecodeJoinRequest(wire)
	if err != nil {
		t.Fatal(err)
	}
	bad := *got
	bad.CSR = []byte("no request")
	if _, err := Admit(ctx, src, creds, time.Now(), &bad); !oerr.Is(err, oerr.InvalidArgument) {
		t.Fatalf("a bad certificate request was answered %v", err)
	}
	reply, err := Admit(ctx, src, creds, time.Now(), got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Admit(ctx, src, creds, time.Now(), got)
	if err != nil || again.Node != reply.Node || !reflect.DeepEqual(again.Drives, reply.Drives) {
		t.Fatalf("asked again: %v, %v; first %v", again, err, reply)
	}
	out, err := reply.Encode()
	if err != nil {
		t.Fatal(err)
	}
	reply, err = pki.DecodeJoinReply(out, tok, 2)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Node != 2 || !reflect.DeepEqual(reply.Drives, []ident.Drive{2, 3}) || len(reply.Members) != 1 || len(reply.Nodes) != 1 {
		t.Fatalf("%+v", reply)
	}
	if _, err := pki.NewCredentials(reply.ClusterID, reply.Node, reply.CACert, reply.Cert, key, reply.SealKey, reply.GossipKey); err != nil {
		t.Fatal(err)
	}
	if d := src.View().Drives[3]; d.Node != 2 || d.UUID != testID(32) || d.Capacity != 1<<41 {
		t.Fatalf("drive 3 is %+v", d)
	}
	second := pki.NewJoinRequest(tok, csr)
	second.Name, second.S3, second.Admin, second.Internode, second.Gossip = "n3", "h:1", "h:2", "h:3", "h:4"
	second.Drives = []pki.JoinDrive{{UUID: testID(41), Path: "/d"}}
	src.f.bad = nil
	if _, err := Admit(context.Background(), src, creds, time.Now(), second); !oerr.Is(err, oerr.PermissionDenied) {
		t.Fatalf("a used token was answered %v, expected permission_denied", err)
	}
}
