package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

const (
	uriScheme   = "objstore"
	rolePath    = "node" // the only role there is: objstore://<cluster>/node/<number>
	maxCSRBytes = 4 << 10
)

// NewKey makes a node's key and the certificate request for it. The key never leaves the node.
func NewKey() (keyDER, csrDER []byte, err error) {
	const op = "pki.new_key"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, oerr.E(op, oerr.Internal, err)
	}
	if keyDER, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return nil, nil, oerr.E(op, oerr.Internal, err)
	}
	if csrDER, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, oerr.E(op, oerr.Internal, err)
	}
	return keyDER, csrDER, nil
}

// CheckCSR verifies a certificate request: an ECDSA P-256 key whose holder signed it. Everything else in it is ignored.
func CheckCSR(csrDER []byte) error {
	_, err := csrKey(csrDER)
	return err
}

func csrKey(csrDER []byte) (*ecdsa.PublicKey, error) {
	const op = "pki.check_csr"
	if len(csrDER) > maxCSRBytes {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "certificate request of %d bytes, at most %d are allowed", len(csrDER), maxCSRBytes)
	}
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "certificate request: %w", err)
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "certificate request: read a key of type %T, expected ECDSA on P-256", csr.PublicKey)
	}
	return key, nil
}

// IssueNode makes the certificate of a node. What it says (cluster, role, number) comes from the caller, which has it
// from group 0, never from the request.
func IssueNode(ca *CA, node ident.Node, csrDER []byte, now time.Time) ([]byte, error) {
	const op = "pki.issue_node"
	if node == 0 {
		return nil, oerr.Errorf(op, oerr.Internal, "node number 0 names no node")
	}
	key, err := csrKey(csrDER)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("objstore node %d", node)},
		URIs:                  []*url.URL{nodeURI(ca.Cluster, node)},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(nodeLifetime),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.Cert, key, ca.key)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	return der, nil
}

func nodeURI(cluster ident.ID, node ident.Node) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: cluster.String(), Path: fmt.Sprintf("/%s/%d", rolePath, node)}
}

// peerOfCert reads cluster, role and node from a certificate. It does not verify the certificate.
func peerOfCert(cert *x509.Certificate) (ident.ID, wire.Peer, error) {
	const op = "pki.peer"
	if len(cert.URIs) != 1 {
		return ident.ID{}, wire.Peer{}, oerr.Errorf(op, oerr.PermissionDenied, "certificate with %d URI names, expected 1", len(cert.URIs))
	}
	u := cert.URIs[0]
	text := u.String()
	cluster, err := ident.Parse(u.Host)
	role, number, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	n, nerr := strconv.ParseUint(number, 10, 32)
	// The comparison refuses every other spelling of the same name: user info, queries, leading zeros, upper case.
	if err != nil || !ok || role != rolePath || nerr != nil || n == 0 || nodeURI(cluster, ident.Node(n)).String() != text {
		return ident.ID{}, wire.Peer{}, oerr.Errorf(op, oerr.PermissionDenied, "certificate name %.200q, expected %s://<cluster>/%s/<number>", text, uriScheme, rolePath)
	}
	return cluster, wire.Peer{Node: ident.Node(n), Role: wire.RoleNode}, nil
}
