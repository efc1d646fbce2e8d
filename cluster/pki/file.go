package pki

import (
	"encoding/json"
	"os"
	"path/filepath"

	"objstore/cluster/internal/durable"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// CredentialsFile is the name of a node's credentials in a data folder. Only its owner may read it (0600).
const CredentialsFile = "node.json"

const (
	fileFormat   = 1
	maxFileBytes = 64 << 10
)

type credentialsFile struct {
	Format    uint32     `json:"format"`
	ClusterID ident.ID   `json:"cluster_id"`
	Node      ident.Node `json:"node"`
	CACert    []byte     `json:"ca_cert"`
	Cert      []byte     `json:"cert"`
	Key       []byte     `json:"key"`
	SealKey   []byte     `json:"seal_key"`
	GossipKey []byte     `json:"gossip_key"`
}

// Write puts the credentials into a data folder, durably.
func (c *Credentials) Write(dir string) error {
	const op = "pki.write_credentials"
	b, err := json.MarshalIndent(credentialsFile{
		Format: fileFormat, ClusterID: c.Cluster, Node: c.Node, CACert: c.CACert, Cert: c.Cert, Key: c.key, SealKey: c.SealKey, GossipKey: c.Gossip,
	}, "", "  ")
	if err != nil {
		return oerr.E(op, oerr.Internal, err)
	}
	if err := durable.WriteFile(filepath.Join(dir, CredentialsFile), append(b, '\n'), 0o600); err != nil {
		return oerr.E(op, oerr.Internal, err)
	}
	return nil
}

// ReadCredentials reads what Write wrote. A file that others may read is refused.
func ReadCredentials(dir string) (*Credentials, error) {
	const op = "pki.read_credentials"
	path := filepath.Join(dir, CredentialsFile)
	st, err := os.Stat(path)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, oerr.Errorf(op, oerr.PermissionDenied, "%s: mode %#o, expected 0600: it holds a private key; if nobody has read it, run chmod 600", path, mode)
	}
	data, err := durable.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, oerr.E(op, oerr.Internal, err)
	}
	c, err := decodeCredentials(data)
	if err != nil {
		return nil, oerr.Errorf(op, oerr.Corrupt, "%s: %w", path, err)
	}
	return c, nil
}

func decodeCredentials(data []byte) (*Credentials, error) {
	const op = "pki.read_credentials"
	var f credentialsFile
	if err := decodeJoin(data, &f); err != nil {
		return nil, oerr.E(op, oerr.Corrupt, err)
	}
	if f.Format != fileFormat {
		return nil, oerr.Errorf(op, oerr.Corrupt, "format %d, expected %d", f.Format, fileFormat)
	}
	return NewCredentials(f.ClusterID, f.Node, f.CACert, f.Cert, f.Key, f.SealKey, f.GossipKey)
}
