package pki

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

// ALPN names of what runs on the internode port.
const (
	ProtoRPC   = "objstore-rpc/1"
	ProtoShard = "objstore-shard/1"
	ProtoJoin  = "objstore-join/1" // the only one open to a peer without a certificate
)

// Credentials is a node's identity in its cluster, with its key and what the cluster shares with its nodes. Make it by
// NewCredentials, or read it from disk.
type Credentials struct {
	Cluster ident.ID
	Node    ident.Node
	CACert  []byte // DER
	Cert    []byte // DER
	SealKey []byte // unseals the CA key in group 0
	Gossip  []byte // memberlist's primary key at the time of the join

	key  []byte // PKCS #8
	ca   *x509.Certificate
	pair tls.Certificate
	now  func() time.Time
}

// NewCredentials checks that certificate, key and CA belong together.
func NewCredentials(cluster ident.ID, node ident.Node, caCert, cert, key, sealKey, gossip []byte) (*Credentials, error) {
	const op = "pki.credentials"
	ca, err := parseCACert(cluster, caCert)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	leaf, err := x509.ParseCertificate(cert)
	if err != nil {
		return nil, oerr.Errorf(op, oerr.Corrupt, "node certificate: %w", err)
	}
	priv, err := parseKey(key)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	if !priv.PublicKey.Equal(leaf.PublicKey) {
		return nil, oerr.Errorf(op, oerr.Corrupt, "the key is not that of the node certificate")
	}
	if err := leaf.CheckSignatureFrom(ca); err != nil {
		return nil, oerr.Errorf(op, oerr.Corrupt, "node certificate: %w", err)
	}
	named, peer, err := peerOfCert(leaf)
	if err != nil || named != cluster || peer.Node != node {
		return nil, oerr.Errorf(op, oerr.Corrupt, "node certificate: read cluster %s and node %d, expected cluster %s and node %d", named, peer.Node, cluster, node)
	}
	if len(sealKey) != SealKeySize {
		return nil, oerr.Errorf(op, oerr.Corrupt, "seal key of %d bytes, expected %d", len(sealKey), SealKeySize)
	}
	return &Credentials{
		Cluster: cluster, Node: node, CACert: caCert, Cert: cert, SealKey: sealKey, Gossip: gossip, key: key, ca: ca, now: time.Now,
		// The CA goes along: a joiner has only its fingerprint.
		pair: tls.Certificate{Certificate: [][]byte{cert, caCert}, PrivateKey: priv, Leaf: leaf},
	}, nil
}

// String keeps the keys out of logs.
func (c *Credentials) String() string {
	return nodeURI(c.Cluster, c.Node).String()
}

// GoString keeps the keys out of %#v.
func (c *Credentials) GoString() string { return c.String() }

// ServerConfig is for the internode listener: TLS 1.3; rpc and shard connections need a node certificate of this
// cluster, join connections none. allow may refuse a node that group 0 has removed; nil allows all.
func (c *Credentials) ServerConfig(allow func(ident.Node) bool) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.pair},
		NextProtos:             []string{ProtoRPC, ProtoShard, ProtoJoin},
		ClientAuth:             tls.RequestClientCert, // VerifyConnection decides: it knows the protocol
		SessionTicketsDisabled: true,                  // connections are long-lived, and each is to be verified anew
		VerifyConnection: func(cs tls.ConnectionState) error {
			switch cs.NegotiatedProtocol {
			case ProtoJoin:
				return nil
			case ProtoRPC, ProtoShard:
				peer, err := c.verify(cs, x509.ExtKeyUsageClientAuth)
				if err == nil && allow != nil && !allow(peer.Node) {
					err = oerr.Errorf("pki.server", oerr.PermissionDenied, "node %d is not allowed in this cluster any more", peer.Node)
				}
				return err
			}
			return oerr.Errorf("pki.server", oerr.PermissionDenied, "protocol %.60q is none of this port's", cs.NegotiatedProtocol)
		},
	}
}

// ClientConfig is for a connection to one node by one protocol (ProtoRPC or ProtoShard). The far end must prove to be
// exactly that node: addresses come from gossip and group 0, and prove nothing.
func (c *Credentials) ClientConfig(node ident.Node, proto string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.pair},
		NextProtos:             []string{proto},
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true, // there are no host names in it: VerifyConnection checks chain, cluster and node
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != proto {
				return oerr.Errorf("pki.client", oerr.PermissionDenied, "node %d speaks protocol %.60q, expected %q", node, cs.NegotiatedProtocol, proto)
			}
			peer, err := c.verify(cs, x509.ExtKeyUsageServerAuth)
			if err == nil && peer.Node != node {
				err = oerr.Errorf("pki.client", oerr.PermissionDenied, "the peer is node %d, expected node %d", peer.Node, node)
			}
			return err
		},
	}
}

// PeerOf says who is at the far end of a finished handshake, and verifies it again: it may be asked about a connection
// made under any configuration. A join connection is nobody's, whatever certificate came with it.
func (c *Credentials) PeerOf(cs tls.ConnectionState) (wire.Peer, error) {
	switch {
	case !cs.HandshakeComplete:
		return wire.Peer{}, oerr.Errorf("pki.peer", oerr.PermissionDenied, "the handshake is not complete")
	case cs.NegotiatedProtocol == ProtoJoin:
		return wire.Peer{Role: wire.RoleNone}, nil
	}
	return c.verify(cs, x509.ExtKeyUsageAny)
}

// verify checks the peer's certificate against the cluster CA and returns whom it names.
func (c *Credentials) verify(cs tls.ConnectionState, usage x509.ExtKeyUsage) (wire.Peer, error) {
	const op = "pki.verify"
	if len(cs.PeerCertificates) == 0 {
		return wire.Peer{}, oerr.Errorf(op, oerr.PermissionDenied, "the peer sent no certificate")
	}
	leaf := cs.PeerCertificates[0]
	if err := verifyChain(leaf, c.ca, usage, c.now()); err != nil {
		return wire.Peer{}, oerr.Errorf(op, oerr.PermissionDenied, "peer certificate: %w", err)
	}
	cluster, peer, err := peerOfCert(leaf)
	if err != nil {
		return wire.Peer{}, err
	}
	if cluster != c.Cluster {
		return wire.Peer{}, oerr.Errorf(op, oerr.PermissionDenied, "peer certificate of cluster %s, expected cluster %s", cluster, c.Cluster)
	}
	return peer, nil
}

func verifyChain(leaf, ca *x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// JoinConfig is for a joiner's connection: it has no certificate, and knows the cluster by the CA fingerprint in its
// token. The far end must have a node certificate by that CA, so a token is never shown to anybody else.
func JoinConfig(t Token) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{ProtoJoin},
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true, // VerifyConnection pins the CA
		VerifyConnection: func(cs tls.ConnectionState) error {
			const op = "pki.join"
			if cs.NegotiatedProtocol != ProtoJoin {
				return oerr.Errorf(op, oerr.PermissionDenied, "the peer speaks protocol %.60q, expected %q", cs.NegotiatedProtocol, ProtoJoin)
			}
			if len(cs.PeerCertificates) != 2 {
				return oerr.Errorf(op, oerr.PermissionDenied, "the peer sent %d certificates, expected a node's and its CA's", len(cs.PeerCertificates))
			}
			leaf, ca := cs.PeerCertificates[0], cs.PeerCertificates[1]
			if got := Fingerprint(ca.Raw); got != t.CA {
				return oerr.Errorf(op, oerr.PermissionDenied, "the peer's CA has fingerprint %x, the token expects %x: another cluster answers at this address", got, t.CA)
			}
			if err := verifyChain(leaf, ca, x509.ExtKeyUsageServerAuth, time.Now()); err != nil {
				return oerr.Errorf(op, oerr.PermissionDenied, "peer certificate: %w", err)
			}
			_, _, err := peerOfCert(leaf)
			return err
		},
	}
}
