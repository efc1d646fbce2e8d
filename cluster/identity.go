package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"objstore/cluster/internal/durable"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// IdentityFile is the name of the identity on each data folder.
const IdentityFile = "objstore.json"

const (
	identityFormat   = 1
	maxIdentityBytes = 16 << 10
)

// Identity says whose data folder a folder is. Every data folder of a node carries one; docs/formats/identity.md.
type Identity struct {
	Format      uint32            `json:"format"`
	ClusterID   ident.ID          `json:"cluster_id"`
	Node        ident.Node        `json:"node"`
	NodeName    string            `json:"node_name"`
	Drive       ident.Drive       `json:"drive"`
	DriveUUID   ident.ID          `json:"drive_uuid"`
	Incarnation ident.Incarnation `json:"incarnation"`
}

// FolderState is what CheckFolder found.
type FolderState uint8

const (
	FolderEmpty FolderState = iota // may be formatted
	FolderOurs                     // carries an identity
)

// tolerated are names that an empty folder may hold: what a file system makes, and what comes before the identity when
// a folder is formatted. The identity is written last of all that a start needs.
var tolerated = [...]string{"lost+found", LockFile, IdentityFile + durable.TempSuffix}

// EncodeIdentity returns the content of the identity file.
func EncodeIdentity(id Identity) ([]byte, error) {
	id.Format = identityFormat
	if err := id.validate(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return nil, oerr.E("cluster.identity", oerr.Internal, err)
	}
	return append(b, '\n'), nil
}

// DecodeIdentity reads the content of an identity file. Anything but a complete identity of a known format is Corrupt.
func DecodeIdentity(data []byte) (Identity, error) {
	var id Identity
	if err := decodeStrict(data, maxIdentityBytes, &id); err != nil {
		return Identity{}, oerr.Errorf("cluster.identity", oerr.Corrupt, "damaged identity: %w", err)
	}
	if err := id.validate(); err != nil {
		return Identity{}, err
	}
	return id, nil
}

func (id Identity) validate() error {
	switch {
	case id.Format != identityFormat:
		return oerr.Errorf("cluster.identity", oerr.Corrupt, "identity: read format %d, expected %d", id.Format, identityFormat)
	case id.ClusterID.IsZero() || id.DriveUUID.IsZero():
		return oerr.Errorf("cluster.identity", oerr.Corrupt, "identity: cluster id %s and drive uuid %s, expected random ones", id.ClusterID, id.DriveUUID)
	case id.Node == 0 || id.Drive == 0 || id.Incarnation == 0:
		return oerr.Errorf("cluster.identity", oerr.Corrupt, "identity: node %d, drive %d, incarnation %d, expected numbers from 1 up", id.Node, id.Drive, id.Incarnation)
	case !nodeName(id.NodeName):
		return oerr.Errorf("cluster.identity", oerr.Corrupt, "identity: node name %s", quoteShort(id.NodeName))
	}
	return nil
}

// WriteIdentity writes the identity durably: after a crash the folder has the old one, or none, or this one.
func WriteIdentity(dir string, id Identity) error {
	b, err := EncodeIdentity(id)
	if err != nil {
		return oerr.Wrap("cluster.write_identity", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, IdentityFile), b, 0o600); err != nil {
		return oerr.E("cluster.write_identity", oerr.Internal, err)
	}
	return nil
}

// CheckFolder says whether dir is empty or carries an identity. Any other folder is an error that says what to do. Names
// in also do not count as content: files that formatting puts down before the identity.
func CheckFolder(dir string, also ...string) (FolderState, Identity, error) {
	const op = "cluster.check_folder"
	path := filepath.Join(dir, IdentityFile)
	data, err := durable.ReadFile(path, maxIdentityBytes)
	switch {
	case err == nil:
		id, err := DecodeIdentity(data)
		if err != nil {
			return 0, Identity{}, oerr.Errorf(op, oerr.KindOf(err), "%s: %w: restore this file from a copy, or empty the folder and replace the drive", path, err)
		}
		return FolderOurs, id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, Identity{}, oerr.Errorf(op, oerr.Internal, "data folder %s: its identity cannot be read: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, Identity{}, oerr.Errorf(op, oerr.Internal, "data folder %s: %w: it must exist and be readable", dir, err)
	}
	var foreign []string
	for _, e := range entries {
		if !slices.Contains(tolerated[:], e.Name()) && !slices.Contains(also, e.Name()) {
			foreign = append(foreign, e.Name())
		}
	}
	if len(foreign) > 0 {
		return 0, Identity{}, oerr.Errorf(op, oerr.InvalidArgument,
			"data folder %s: read %s but no %s, expected an empty folder or one of objstore's: give another folder, or empty this one",
			dir, firstOf(foreign), IdentityFile)
	}
	return FolderEmpty, Identity{}, nil
}

// firstOf names a few entries of a folder.
func firstOf(names []string) string {
	const show = 3
	text := make([]string, 0, show)
	for _, n := range names[:min(show, len(names))] {
		text = append(text, quoteShort(n))
	}
	if len(names) > show {
		text = append(text, "…")
	}
	return strings.Join(text, ", ")
}

// CheckIdentities holds what the folders of one node must have in common: one cluster, one node, and no drive twice.
// It is called with what CheckFolder returned for all folders that carry an identity.
func CheckIdentities(found map[string]Identity) error {
	const op = "cluster.check_identities"
	dirs := sortedKeys(found)
	for i, dir := range dirs {
		first, id := found[dirs[0]], found[dir]
		switch {
		case id.ClusterID != first.ClusterID:
			return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s belongs to cluster %s, %s to cluster %s: give only folders of one cluster",
				dir, id.ClusterID, dirs[0], first.ClusterID)
		case id.Node != first.Node:
			return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s belongs to node %d (%s), %s to node %d (%s): give only folders of one node",
				dir, id.Node, id.NodeName, dirs[0], first.Node, first.NodeName)
		}
		for _, other := range dirs[:i] {
			if o := found[other]; o.Drive == id.Drive || o.DriveUUID == id.DriveUUID {
				return oerr.Errorf(op, oerr.InvalidArgument, "data folders %s and %s both say they are drive %d (uuid %s): one is a copy; start without the copy",
					other, dir, id.Drive, id.DriveUUID)
			}
		}
	}
	return nil
}

// CheckAgainstView compares a folder's identity with what group 0 says about its drive. A folder that group 0 has given
// up (a newer incarnation, another uuid, a removed drive) must not be served.
func CheckAgainstView(dir string, id Identity, v *View) error {
	const op = "cluster.check_identity"
	if id.ClusterID != v.ClusterID {
		return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s belongs to cluster %s, this is cluster %s: give another folder", dir, id.ClusterID, v.ClusterID)
	}
	d := v.Drives[id.Drive]
	switch {
	case d == nil:
		return oerr.Errorf(op, oerr.Unavailable, "data folder %s: drive %d is not known at group-0 index %d: this node has not caught up, or the folder is of another cluster's copy", dir, id.Drive, v.Index)
	case d.Node != id.Node:
		return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s: it says drive %d is of node %d, the cluster says of node %d", dir, id.Drive, id.Node, d.Node)
	case d.State == DriveRemoved:
		return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s: drive %d was removed from the cluster: empty the folder to use it again", dir, id.Drive)
	case d.Incarnation != id.Incarnation || d.UUID != id.DriveUUID:
		return oerr.Errorf(op, oerr.WrongIncarnation, "data folder %s: read incarnation %d with uuid %s of drive %d, expected incarnation %d with uuid %s: an older copy of the drive",
			dir, id.Incarnation, id.DriveUUID, id.Drive, d.Incarnation, d.UUID)
	}
	return nil
}
