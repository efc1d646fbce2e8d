// Package wiretest makes a throw-away certificate authority and the TLS configurations of a few nodes, for tests of what
// speaks internal/wire. The real ones are in cluster/pki. It is for tests only.
package wiretest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

// PKI is a certificate authority.
type PKI struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// New makes an authority that lives as long as the test.
func New(t testing.TB) *PKI {
	t.Helper()
	p := &PKI{t: t, pool: x509.NewCertPool()}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	p.key = p.newKey()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &p.key.PublicKey, p.key)
	if err != nil {
		t.Fatalf("making a CA: %v", err)
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatalf("parsing the CA: %v", err)
	}
	p.pool.AddCert(p.cert)
	return p
}

func (p *PKI) newKey() *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatalf("making a key: %v", err)
	}
	return k
}

func (p *PKI) leaf(name string) tls.Certificate {
	key := p.newKey()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.cert, &key.PublicKey, p.key)
	if err != nil {
		p.t.Fatalf("making a certificate: %v", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Server returns node's server configuration: client certificates are required unless the peer offers only ALPNJoin.
func (p *PKI) Server(node ident.Node) *tls.Config {
	base := &tls.Config{Certificates: []tls.Certificate{p.leaf(nodeName(node))}, ClientCAs: p.pool, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{wire.ALPNRPC, wire.ALPNShard, wire.ALPNJoin}}
	join := base.Clone()
	join.ClientAuth, join.NextProtos = tls.NoClientCert, []string{wire.ALPNJoin}
	base.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Equal(h.SupportedProtos, []string{wire.ALPNJoin}) {
			return join, nil
		}
		return nil, nil
	}
	return base
}

// Client returns node's configuration for connections to others; node 0 has no certificate.
func (p *PKI) Client(node ident.Node) *tls.Config {
	cfg := &tls.Config{RootCAs: p.pool, ServerName: "node"}
	if node != 0 {
		cfg.Certificates = []tls.Certificate{p.leaf(nodeName(node))}
	}
	return cfg
}

// Stranger returns a client configuration whose certificate is valid but names no node.
func (p *PKI) Stranger() *tls.Config {
	return &tls.Config{RootCAs: p.pool, ServerName: "node", Certificates: []tls.Certificate{p.leaf("somebody")}}
}

func nodeName(n ident.Node) string { return fmt.Sprintf("node-%d", n) }

// PeerOf reads the node from a certificate's common name.
func PeerOf(s tls.ConnectionState) (wire.Peer, error) {
	if len(s.PeerCertificates) == 0 {
		return wire.Peer{}, nil
	}
	var n ident.Node
	name := s.PeerCertificates[0].Subject.CommonName
	if _, err := fmt.Sscanf(name, "node-%d", &n); err != nil {
		return wire.Peer{}, oerr.Errorf("wiretest", oerr.PermissionDenied, "certificate of %q, expected a node's", name)
	}
	return wire.Peer{Node: n, Role: wire.RoleNode}, nil
}
