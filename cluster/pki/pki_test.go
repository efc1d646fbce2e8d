package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

func newCA(t testing.TB, cluster ident.ID) *CA {
	t.Helper()
	ca, err := NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func credentials(t testing.TB, ca *CA, node ident.Node, now time.Time) *Credentials {
	t.Helper()
	key, csr, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := IssueNode(ca, node, csr, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredentials(ca.Cluster, node, ca.Cert.Raw, cert, key, NewSealKey(), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shake runs one handshake over loopback and returns what each end says and whom the server saw.
func shake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		c := tls.Client(conn, client)
		if err := c.HandshakeContext(ctx); err != nil {
			done <- err
			return
		}
		// A TLS 1.3 client is done before the server has judged its certificate: read to learn the verdict.
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
		done <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := tls.Server(conn, server)
	if serverErr = s.HandshakeContext(ctx); serverErr == nil {
		s.SetWriteDeadline(time.Now().Add(10 * time.Second))
		s.Write([]byte{1})
	} else {
		conn.Close()
	}
	return s.ConnectionState(), serverErr, <-done
}

func TestOnlyANodeOfThisClusterGetsThrough(t *testing.T) {
	now := time.Now()
	ca, other := newCA(t, ident.New()), newCA(t, ident.New())
	namesake := newCA(t, ca.Cluster) // same cluster id, another key
	server := credentials(t, ca, 1, now)
	removed := func(n ident.Node) bool { return n != 9 }
	token := NewToken(ca.Cert.Raw)
	noCert := func(proto string) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{proto}, InsecureSkipVerify: true}
	}
	withProto := func(c *tls.Config, protos ...string) *tls.Config {
		c.NextProtos = protos
		c.VerifyConnection = nil
		return c
	}
	for _, c := range []struct {
		name   string
		client *tls.Config
		peer   wire.Peer
		fails  string // what one of both ends must say
	}{
		{"a node by rpc", credentials(t, ca, 2, now).ClientConfig(1, ProtoRPC), wire.Peer{Node: 2, Role: wire.RoleNode}, ""},
		{"a node by shard", credentials(t, ca, 3, now).ClientConfig(1, ProtoShard), wire.Peer{Node: 3, Role: wire.RoleNode}, ""},
		{"a joiner", JoinConfig(token), wire.Peer{Role: wire.RoleNone}, ""},
		{"a node on a join connection is nobody", withProto(credentials(t, ca, 2, now).ClientConfig(1, ProtoJoin), ProtoJoin), wire.Peer{Role: wire.RoleNone}, ""},
		{"a removed node", credentials(t, ca, 9, now).ClientConfig(1, ProtoRPC), wire.Peer{}, "node 9 is not allowed"},
		{"no certificate on rpc", noCert(ProtoRPC), wire.Peer{}, "sent no certificate"},
		{"no certificate on shard", noCert(ProtoShard), wire.Peer{}, "sent no certificate"},
		{"another cluster", withProto(credentials(t, other, 2, now).ClientConfig(1, ProtoRPC), ProtoRPC), wire.Peer{}, "unknown authority"},
		{"a CA of the same name", withProto(credentials(t, namesake, 2, now).ClientConfig(1, ProtoRPC), ProtoRPC), wire.Peer{}, "unknown authority"},
		{"an expired certificate", credentials(t, ca, 2, now.Add(-2*nodeLifetime)).ClientConfig(1, ProtoRPC), wire.Peer{}, "expired"},
		{"a certificate of the future", credentials(t, ca, 2, now.Add(2*clockSlack)).ClientConfig(1, ProtoRPC), wire.Peer{}, "not yet valid"},
		{"a wrong role", withCert(t, ca, roleURI(ca.Cluster, "admin/2"), server), wire.Peer{}, "expected objstore://"},
		{"node 0", withCert(t, ca, roleURI(ca.Cluster, "node/0"), server), wire.Peer{}, "expected objstore://"},
		{"a leading zero", withCert(t, ca, roleURI(ca.Cluster, "node/02"), server), wire.Peer{}, "expected objstore://"},
		{"another cluster's name under our CA", withCert(t, ca, roleURI(other.Cluster, "node/2"), server), wire.Peer{}, "expected cluster"},
		{"no protocol", withProto(credentials(t, ca, 2, now).ClientConfig(1, ProtoRPC)), wire.Peer{}, "none of this port's"},
		{"an unknown protocol", withProto(credentials(t, ca, 2, now).ClientConfig(1, ProtoRPC), "h2"), wire.Peer{}, "unsupported application protocols"},
		{"a client that wants another node", credentials(t, ca, 2, now).ClientConfig(5, ProtoRPC), wire.Peer{}, "is node 1, expected node 5"},
		{"a joiner with another cluster's token", JoinConfig(NewToken(other.Cert.Raw)), wire.Peer{}, "another cluster answers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, serverErr, clientErr := shake(t, server.ServerConfig(removed), c.client)
			if c.fails != "" {
				if text := fmt.Sprint(serverErr, " / ", clientErr); !strings.Contains(text, c.fails) {
					t.Fatalf("server and client say %s; expected %q", text, c.fails)
				}
				return
			}
			if serverErr != nil || clientErr != nil {
				t.Fatalf("server: %v, client: %v", serverErr, clientErr)
			}
			if peer, err := server.PeerOf(state); err != nil || peer != c.peer {
				t.Fatalf("peer is %+v, %v; expected %+v", peer, err, c.peer)
			}
			if state.Version != tls.VersionTLS13 {
				t.Fatalf("TLS version %#x", state.Version)
			}
		})
	}
}

func roleURI(cluster ident.ID, path string) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: cluster.String(), Path: "/" + path}
}

// withCert is a client whose certificate, by our CA, has any name.
func withCert(t *testing.T, ca *CA, name *url.URL, base *Credentials) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := *base.pair.Leaf
	tmpl.URIs = []*url.URL{name}
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, ca.Cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{ProtoRPC}, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestAJoinerShowsItsTokenToNobodyElse(t *testing.T) {
	ca := newCA(t, ident.New())
	// An impostor has the CA certificate, which is public, but no key under it.
	impostor := credentials(t, newCA(t, ident.New()), 1, time.Now())
	pair := impostor.pair
	pair.Certificate = [][]byte{impostor.Cert, ca.Cert.Raw}
	conf := impostor.ServerConfig(nil)
	conf.Certificates = []tls.Certificate{pair}
	_, _, err := shake(t, conf, JoinConfig(NewToken(ca.Cert.Raw)))
	if err == nil || !strings.Contains(err.Error(), "peer certificate") {
		t.Fatalf("the joiner says %v", err)
	}
}

func TestPeerOfDoesNotTrustAnUnverifiedConnection(t *testing.T) {
	ca := newCA(t, ident.New())
	server, stranger := credentials(t, ca, 1, time.Now()), credentials(t, newCA(t, ident.New()), 2, time.Now())
	lax := server.ServerConfig(nil)
	lax.VerifyConnection = nil
	client := stranger.ClientConfig(1, ProtoRPC)
	client.VerifyConnection = nil
	state, serverErr, clientErr := shake(t, lax, client)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v, client: %v", serverErr, clientErr)
	}
	if _, err := server.PeerOf(state); !oerr.Is(err, oerr.PermissionDenied) {
		t.Fatalf("answered %v, expected permission_denied", err)
	}
	if _, err := server.PeerOf(tls.ConnectionState{}); !oerr.Is(err, oerr.PermissionDenied) {
		t.Fatalf("an unfinished handshake was answered %v", err)
	}
}

func TestOnlyGoodRequestsAreSigned(t *testing.T) {
	ca := newCA(t, ident.New())
	_, csr, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(csr)
	forged[len(forged)-1] ^= 1
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	ed, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, edKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "forged": forged, "other kind of key": ed, "too long": make([]byte, maxCSRBytes+1)} {
		if _, err := IssueNode(ca, 1, bad, time.Now()); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("%s: answered %v, expected invalid_argument", name, err)
		}
	}
	if _, err := IssueNode(ca, 0, csr, time.Now()); err == nil {
		t.Error("node 0 got a certificate")
	}
}

func TestCredentialsOnDiskAreTheOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	c := credentials(t, newCA(t, ident.New()), 4, time.Now())
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CredentialsFile)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v; expected 0600", st.Mode(), err)
	}
	back, err := ReadCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	if back.Node != 4 || back.Cluster != c.Cluster || !bytes.Equal(back.Cert, c.Cert) || !bytes.Equal(back.SealKey, c.SealKey) || !bytes.Equal(back.Gossip, c.Gossip) {
		t.Fatalf("read %+v", back)
	}
	printed := fmt.Sprintf("%v %+v %#v", c, c, c)
	if strings.Contains(printed, fmt.Sprint(c.SealKey)) || len(printed) > 400 {
		t.Fatalf("credentials print as %s", printed)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCredentials(dir); !oerr.Is(err, oerr.PermissionDenied) || !strings.Contains(err.Error(), path) {
		t.Fatalf("a file others may read was answered %v", err)
	}
}

func TestPartsOfDifferentIdentitiesDoNotMix(t *testing.T) {
	ca := newCA(t, ident.New())
	a, b := credentials(t, ca, 1, time.Now()), credentials(t, ca, 2, time.Now())
	stranger := credentials(t, newCA(t, ident.New()), 1, time.Now())
	for name, err := range map[string]error{
		"another node's key": second(NewCredentials(a.Cluster, 1, a.CACert, a.Cert, b.key, a.SealKey, nil)),
		"another node":       second(NewCredentials(a.Cluster, 2, a.CACert, a.Cert, a.key, a.SealKey, nil)),
		"another cluster":    second(NewCredentials(stranger.Cluster, 1, stranger.CACert, a.Cert, a.key, a.SealKey, nil)),
		"another CA's id":    second(NewCredentials(a.Cluster, 1, stranger.CACert, a.Cert, a.key, a.SealKey, nil)),
		"short seal key":     second(NewCredentials(a.Cluster, 1, a.CACert, a.Cert, a.key, nil, nil)),
	} {
		if !oerr.IsCorrupt(err) {
			t.Errorf("%s: answered %v, expected corrupt", name, err)
		}
	}
}

func second(_ *Credentials, err error) error { return err }

func TestTheCAKeyIsSealed(t *testing.T) {
	ca, key := newCA(t, ident.New()), NewSealKey()
	der, err := ca.KeyDER()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Seal(key, ca.Cluster, der)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, der[20:40]) {
		t.Fatal("the key shows in what is sealed")
	}
	open, err := Unseal(key, ca.Cluster, sealed)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseCA(ca.Cluster, ca.Cert.Raw, open)
	if err != nil || !back.key.Equal(ca.key) {
		t.Fatalf("unsealed another key: %v", err)
	}
	if _, err := Unseal(NewSealKey(), ca.Cluster, sealed); !oerr.IsCorrupt(err) {
		t.Errorf("another seal key: %v", err)
	}
	if _, err := Unseal(key, ident.New(), sealed); !oerr.IsCorrupt(err) {
		t.Errorf("another cluster: %v", err)
	}
	if _, err := Unseal(key, ca.Cluster, sealed[:10]); !oerr.IsCorrupt(err) {
		t.Errorf("a piece of it: %v", err)
	}
	if _, err := ParseCA(ca.Cluster, newCA(t, ca.Cluster).Cert.Raw, open); !oerr.IsCorrupt(err) {
		t.Errorf("a key of another certificate: %v", err)
	}
}

func TestTokensReadBackAndDoNotPrint(t *testing.T) {
	tok := NewToken([]byte("ca"))
	back, err := ParseToken(tok.Text() + "\n")
	if err != nil || back != tok {
		t.Fatalf("%v", err)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s", tok, tok, tok, tok); strings.Contains(printed, tok.Text()[70:90]) {
		t.Fatalf("a token prints as %s", printed)
	}
	if len(tok.Hash()) != 64 || tok.Hash() != HashSecret(tok.Secret[:]) || strings.Contains(tok.Text(), tok.Hash()) {
		t.Fatalf("hash %s", tok.Hash())
	}
	for _, bad := range []string{"", "objt1", tok.Text() + "0", tok.Text()[:100], "objt2" + tok.Text()[5:], strings.Replace(tok.Text(), ".", ":", 1), tok.Text() + ".00"} {
		_, err := ParseToken(bad)
		if !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("%q was answered %v", bad, err)
		} else if len(bad) > 80 && strings.Contains(err.Error(), bad[70:90]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func joinRequest(t testing.TB) *JoinRequest {
	t.Helper()
	_, csr, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r := NewJoinRequest(NewToken([]byte("ca")), csr)
	r.Name, r.S3, r.Admin, r.Internode, r.Gossip = "n2", "h:9000", "h:9001", "h:9002", "h:7946"
	r.Drives = []JoinDrive{{UUID: ident.New(), Path: "/d1", Capacity: 1 << 40}}
	return r
}

func TestJoinMessagesReadBack(t *testing.T) {
	r := joinRequest(t)
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeJoinRequest(data)
	if err != nil {
		t.Fatal(err)
	}
	if x, y := mustJSON(t, r), mustJSON(t, back); x != y {
		t.Fatalf("%s became %s", x, y)
	}
	if r.StepID(0) == r.StepID(1) || r.StepID(0) != back.StepID(0) {
		t.Fatal("step ids are not distinct and stable")
	}
	other := *r
	other.Secret = make([]byte, 32)
	if other.StepID(0) == r.StepID(0) {
		t.Fatal("step ids can be had without the secret")
	}
	tok := NewToken([]byte("ca"))
	reply := &JoinReply{ClusterID: ident.New(), Node: 2, Drives: []ident.Drive{5}, Cert: []byte("c"), CACert: []byte("ca"), Members: []JoinMember{{Replica: 1, Node: 1, Drive: 1}}}
	data, err = reply.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeJoinReply(data, tok, 1); err != nil || mustJSON(t, got) != mustJSON(t, reply) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := DecodeJoinReply(data, NewToken([]byte("other")), 1); !oerr.Is(err, oerr.PermissionDenied) {
		t.Errorf("a reply with another CA was answered %v", err)
	}
	if _, err := DecodeJoinReply(data, tok, 2); err == nil {
		t.Error("a reply with too few drives was accepted")
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func FuzzDecodeJoinRequest(f *testing.F) {
	r := joinRequest(f)
	good, err := r.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add(append(bytes.Clone(good), '{'))
	f.Add([]byte(`{"version":1,"drives":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeJoinRequest(data)
		if err != nil {
			if !oerr.Is(err, oerr.InvalidArgument) {
				t.Fatalf("answered %v", err)
			}
			return
		}
		if len(r.Drives) == 0 || len(r.Drives) > maxJoinDrives || len(r.Secret) != 32 {
			t.Fatalf("accepted %+v", r)
		}
		_ = CheckCSR(r.CSR)
		_ = r.String()
	})
}

func FuzzDecodeJoinReply(f *testing.F) {
	reply := &JoinReply{ClusterID: ident.New(), Node: 2, Drives: []ident.Drive{5}, CACert: []byte("ca"), Members: []JoinMember{{Replica: 1, Node: 1, Drive: 1}}}
	good, err := reply.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	tok := NewToken([]byte("ca"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := DecodeJoinReply(data, tok, 1); err == nil && (r.Node == 0 || len(r.Drives) != 1 || r.Drives[0] == 0) {
			t.Fatalf("accepted %+v", r)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add(NewToken(nil).Text())
	f.Add("objt1..")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ParseToken(s)
		if err == nil && !strings.EqualFold(tok.Text(), strings.TrimSpace(s)) {
			t.Fatalf("%q was read as %s", s, tok.Text())
		}
	})
}

func FuzzDecodeCredentials(f *testing.F) {
	dir := f.TempDir()
	if err := credentials(f, newCA(f, ident.New()), 4, time.Now()).Write(dir); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, CredentialsFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := decodeCredentials(data); err != nil && !oerr.IsCorrupt(err) {
			t.Fatalf("damaged credentials are reported as %v", err)
		}
	})
}
