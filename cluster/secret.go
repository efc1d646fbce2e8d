package cluster

import "fmt"

// Secrets is what group 0 keeps for its nodes alone. It is reached only through View.Secrets and prints nothing.
type Secrets struct {
	CACert    []byte // DER of the cluster CA's certificate
	CAKey     []byte // the CA's private key, sealed (pki.Seal)
	GossipKey []byte // memberlist's primary key
}

// Secrets returns the cluster's secrets as of this view. They are shared: never change them.
func (v *View) Secrets() Secrets {
	if v.secrets == nil {
		return Secrets{}
	}
	return v.secrets()
}

// String keeps the secrets out of logs.
func (Secrets) String() string { return "**redacted**" }

// GoString keeps the secrets out of %#v.
func (Secrets) GoString() string { return "**redacted**" }

// MarshalText keeps the secrets out of JSON.
func (Secrets) MarshalText() ([]byte, error) { return []byte("**redacted**"), nil }

// String summarises the view; it never holds a secret.
func (v *View) String() string {
	return fmt.Sprintf("cluster %s at index %d: %d nodes, %d drives, formed %t, profile %s, epoch %d, %d buckets",
		v.ClusterID, v.Index, len(v.Nodes), len(v.Drives), v.Formed, v.Profile, v.Epoch, len(v.Buckets))
}

// GoString is String: a view is too large to print, and holds credentials.
func (v *View) GoString() string { return v.String() }
