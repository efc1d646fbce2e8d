package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Lifetimes of certificates. There is no rotation yet, so they outlive the hardware.
const (
	caLifetime   = 30 * 365 * 24 * time.Hour
	nodeLifetime = 10 * 365 * 24 * time.Hour
	clockSlack   = time.Hour // certificates are valid from this long before they are made: clocks differ
)

// CA is the cluster's certificate authority, with its key. Every node can read it from group 0 and let nodes in.
type CA struct {
	Cluster ident.ID
	Cert    *x509.Certificate
	key     *ecdsa.PrivateKey
}

// NewCA makes a CA for a new cluster.
func NewCA(cluster ident.ID, now time.Time) (*CA, error) {
	const op = "pki.new_ca"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "objstore cluster " + cluster.String()},
		URIs:                  []*url.URL{clusterURI(cluster)},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	return ParseCA(cluster, der, keyDER)
}

// ParseCA reads a CA from its certificate and key in DER (PKCS #8).
func ParseCA(cluster ident.ID, certDER, keyDER []byte) (*CA, error) {
	const op = "pki.parse_ca"
	cert, err := parseCACert(cluster, certDER)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	key, err := parseKey(keyDER)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, oerr.Errorf(op, oerr.Corrupt, "the key is not that of the CA certificate")
	}
	return &CA{Cluster: cluster, Cert: cert, key: key}, nil
}

// KeyDER returns the private key in PKCS #8. Seal it before it is stored.
func (ca *CA) KeyDER() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return nil, oerr.E("pki.ca_key", oerr.Internal, err)
	}
	return der, nil
}

// String keeps the key out of logs.
func (ca *CA) String() string { return "CA of cluster " + ca.Cluster.String() }

// GoString keeps the key out of %#v.
func (ca *CA) GoString() string { return ca.String() }

// Fingerprint is the SHA-256 of a certificate's DER. A join token pins the CA by it.
func Fingerprint(certDER []byte) [sha256.Size]byte { return sha256.Sum256(certDER) }

// parseCACert reads a CA certificate and checks that it is this cluster's.
func parseCACert(cluster ident.ID, der []byte) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, oerr.Errorf("pki.parse_ca", oerr.Corrupt, "CA certificate: %w", err)
	}
	if want := clusterURI(cluster).String(); !cert.IsCA || len(cert.URIs) != 1 || cert.URIs[0].String() != want {
		return nil, oerr.Errorf("pki.parse_ca", oerr.Corrupt, "CA certificate: read names %v, expected a CA named %s", cert.URIs, want)
	}
	return cert, nil
}

func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	any, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, oerr.Errorf("pki.parse_key", oerr.Corrupt, "private key: %w", err)
	}
	key, ok := any.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, oerr.Errorf("pki.parse_key", oerr.Corrupt, "private key: read %T, expected ECDSA on P-256", any)
	}
	return key, nil
}

// serial is random: 127 bits, so that it is positive and needs no counter that nodes would have to share.
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

func clusterURI(cluster ident.ID) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: cluster.String()}
}
