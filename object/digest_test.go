package object

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"hash"
	"math/bits"
	"testing"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func TestEveryDigestSeesTheWholeBodyBeforeTheSeal(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	for _, size := range []int{0, 1, 8 << 10, oneSlab, inlineDigest + 1, 1 << 20, manySlabs} {
		body := randomBody(1, size)
		hs := []hash.Hash{md5.New(), sha256.New(), md5.New()}
		wantMD5, wantSHA := md5.Sum(body), sha256.Sum256(body)
		sealed := 0
		req := &PutRequest{Bucket: testBucket, Key: "key", Body: Body{Reader: bytes.NewReader(body), Length: int64(size), Digests: hs,
			Seal: func() (Sealed, error) {
				sealed++
				if !bytes.Equal(hs[0].Sum(nil), wantMD5[:]) || !bytes.Equal(hs[1].Sum(nil), wantSHA[:]) || !bytes.Equal(hs[2].Sum(nil), wantMD5[:]) {
					t.Errorf("%d bytes: a digest is wrong at the seal", size)
				}
				return Sealed{ETag: "e"}, nil
			}}}
		if _, err := h.e.Put(t.Context(), req); err != nil || sealed != 1 {
			t.Errorf("%d bytes: sealed %d times, %v", size, sealed, err)
		}
	}
}

// lyingNode acknowledges another shard than it was given.
type lyingNode struct {
	*shardtest.Cluster
	node ident.Node
}

func (l lyingNode) Endpoint(node ident.Node, length uint64) (shard.Endpoint, string) {
	ep, transport := l.Cluster.Endpoint(node, length)
	if node == l.node {
		ep = lyingEndpoint{ep}
	}
	return ep, transport
}

type lyingEndpoint struct{ shard.Endpoint }

func (l lyingEndpoint) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	w, err := l.Endpoint.Create(ctx, spec)
	return lyingWriter{w}, err
}

type lyingWriter struct{ shard.Writer }

func (l lyingWriter) Commit(ctx context.Context) (shard.Ack, error) {
	ack, err := l.Writer.Commit(ctx)
	ack.Digest++
	return ack, err
}

func TestAnAcknowledgementOfOtherBytesDoesNotCount(t *testing.T) {
	for _, size := range []int{oneSlab, manySlabs} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
			h.e.d.Dialer = lyingNode{h.nodes, 2}
			body := randomBody(1, size)
			h.put("key", body)
			if n := bits.OnesCount32(h.blob("key").Missing); n != 1 || h.pending() != 1 {
				t.Errorf("%d shards missing, %d repair rows", n, h.pending())
			}
			h.expect("key", body)
		})
	}
}
