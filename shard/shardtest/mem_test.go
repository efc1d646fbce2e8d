package shardtest_test

import (
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestMemPassesTheSuite(t *testing.T) {
	shardtest.Run(t, func(t *testing.T) shardtest.Subject {
		m := shardtest.NewMem(3)
		return shardtest.MemSubject(m, 3)
	})
}

func TestAClusterHasOneDriveForEachNodeAndUnknownNodesAreUnavailable(t *testing.T) {
	c := shardtest.NewCluster(3)
	c.Local = 2
	for i, want := range []string{"tcp", "local", "tcp"} {
		if _, transport := c.Endpoint(ident.Node(i+1), 0); transport != want {
			t.Errorf("node %d is reached by %s, expected %s", i+1, transport, want)
		}
	}
	ep, _ := c.Endpoint(9, 0)
	for _, ep := range []shard.Endpoint{ep, shardtest.Down()} {
		if _, err := ep.Stat(t.Context(), shard.Ref{Drive: 9, Incarnation: 1, Epoch: 1}, false); !oerr.Is(err, oerr.Unavailable) {
			t.Errorf("an unknown node: %v", err)
		}
	}
}
