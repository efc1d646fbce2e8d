package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"objstore/cluster"
	"objstore/cluster/pki"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
)

// Files of a node beside the identity (docs/formats/identity.md).
const (
	credentialsFile = "credentials.json" // first folder: the root credential of a cluster founded here
	foundingFile    = "founding.json"    // first folder, until group 0 has what it says
	endpointsFile   = "endpoints.json"   // first folder: where this node serves, for commands that are given the folder
	seedsFile       = "seeds.json"       // each folder: where members are until group 0 says so
	replicasFile    = "replicas.json"    // each folder: replicas ever made here
	metaDir         = "meta"             // each folder: the Raft host's stores
)

const (
	joinTimeout = 30 * time.Second // one try; tried until the node is stopped
	joinBackoff = 10 * time.Second // between two tries, at most
)

// formatted are the names that may stand in a folder before its identity does.
func formatted() []string {
	return []string{"shardstore", "segments", "shards", "index", "ballast", metaDir, pki.CredentialsFile, credentialsFile,
		foundingFile, seedsFile, replicasFile, foundingFile + ".tmp", seedsFile + ".tmp", credentialsFile + ".tmp"}
}

// drive is one folder of this node.
type drive struct {
	dir string
	cluster.Identity
}

// folders are this node's data folders, locked, and who it is.
type folders struct {
	locks  []*cluster.FolderLock
	drives []drive // in the order of the numbers
	creds  *pki.Credentials
	found  *founding             // what group 0 has to be told, on a founder's first start
	seeds  map[ident.Node]string // internode addresses known before group 0 is
	root   *cluster.Command      // shown once when it was just made
}

// endpoints is endpoints.json.
type endpoints struct {
	S3    string `json:"s3"`
	Admin string `json:"admin"`
}

// founding is founding.json: the first commands of group 0.
type founding struct {
	Commands []*cluster.Command `json:"commands"`
}

// rootCredential is credentials.json.
type rootCredential struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Region    string `json:"region"`
}

// openFolders locks the folders and makes this node a member if it is none yet.
func openFolders(ctx context.Context, cfg *Config, self cluster.Node) (f *folders, err error) {
	f = &folders{seeds: map[ident.Node]string{}}
	opened := f // f itself is nil where an error is returned
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	if err := f.lock(cfg); err != nil {
		return nil, err
	}
	found := map[string]cluster.Identity{}
	var empty []string
	for _, dir := range cfg.Dirs {
		state, id, err := cluster.CheckFolder(dir, formatted()...)
		if err != nil {
			return nil, err
		}
		if state == cluster.FolderOurs {
			found[dir] = id
		} else {
			empty = append(empty, dir)
		}
	}
	switch {
	case len(found) > 0 && len(empty) > 0:
		return nil, fmt.Errorf("data folder %s is empty, but %s belongs to a node: an empty folder is never formatted by itself on a node with an identity; "+
			"mount the missing drive, or start without this folder", empty[0], firstKey(found))
	case len(found) > 0:
		err = f.member(cfg, found)
	case cfg.Join != "":
		err = f.join(ctx, cfg, self)
	default:
		err = f.makeCluster(cfg, self)
	}
	return f, err
}

func firstKey(m map[string]cluster.Identity) string {
	first := ""
	for k := range m {
		if first == "" || k < first {
			first = k
		}
	}
	return first
}

func (f *folders) lock(cfg *Config) error {
	for _, dir := range cfg.Dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return fmt.Errorf("data folder %s does not exist and cannot be made: %w", dir, err)
			}
		}
	}
	if err := cluster.CheckDevices(cfg.Dirs, cfg.AllowSharedDevice); err != nil {
		return err
	}
	for _, dir := range cfg.Dirs {
		l, err := cluster.LockFolder(dir)
		if err != nil {
			return err
		}
		f.locks = append(f.locks, l)
	}
	return nil
}

// close gives the folders up.
func (f *folders) close() {
	for _, l := range f.locks {
		_ = l.Close() // the lock goes with the process at the latest
	}
}

// member reads who this node is.
func (f *folders) member(cfg *Config, found map[string]cluster.Identity) error {
	if err := cluster.CheckIdentities(found); err != nil {
		return err
	}
	for _, dir := range cfg.Dirs {
		f.drives = append(f.drives, drive{dir, found[dir]})
	}
	f.sort()
	var errs []error
	for _, d := range f.drives {
		c, err := pki.ReadCredentials(d.dir)
		if err == nil && (c.Cluster != d.ClusterID || c.Node != d.Node) {
			err = fmt.Errorf("%s: credentials of node %d in cluster %s, expected node %d in %s", d.dir, c.Node, c.Cluster, d.Node, d.ClusterID)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.creds = c
		break
	}
	if f.creds == nil {
		return errors.Join(errs...)
	}
	first := f.drives[0].dir
	var fd founding
	if err := readState(first, foundingFile, &fd); err == nil {
		f.found = &fd
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := readState(first, seedsFile, &f.seeds); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folders) sort() {
	for i := range f.drives {
		for j := i; j > 0 && f.drives[j].Drive < f.drives[j-1].Drive; j-- {
			f.drives[j], f.drives[j-1] = f.drives[j-1], f.drives[j]
		}
	}
}

// makeCluster founds a cluster whose first node this is. Everything is written before the identity, which says that it is.
func (f *folders) makeCluster(cfg *Config, self cluster.Node) error {
	id := ident.New()
	ca, err := pki.NewCA(id, time.Now())
	if err != nil {
		return err
	}
	key, csr, err := pki.NewKey()
	if err != nil {
		return err
	}
	cert, err := pki.IssueNode(ca, 1, csr, time.Now())
	if err != nil {
		return err
	}
	seal, gossip := pki.NewSealKey(), make([]byte, 32)
	rand.Read(gossip)
	if f.creds, err = pki.NewCredentials(id, 1, ca.Cert.Raw, cert, key, seal, gossip); err != nil {
		return err
	}
	caKey, err := ca.KeyDER()
	if err != nil {
		return err
	}
	sealed, err := pki.Seal(seal, id, caKey)
	if err != nil {
		return err
	}
	root := rootCredential{AccessKey: cfg.Settings.RootAccessKey, SecretKey: cfg.Settings.RootSecretKey, Region: cfg.Settings.S3Region}
	if root.AccessKey == "" {
		root.AccessKey, root.SecretKey = "OBJ"+rand.Text()[:17], rand.Text()+rand.Text()[:14]
	}
	f.root = &cluster.Command{Op: cluster.OpInit, RequestID: ident.New(), ClusterID: id, Format: cluster.FormatVersion,
		Expect: max(cfg.BootstrapExpect, 1), AccessKey: root.AccessKey, Secret: root.SecretKey, CACert: ca.Cert.Raw, CAKey: sealed, GossipKey: gossip}
	node := self
	f.found = &founding{Commands: []*cluster.Command{f.root, {Op: cluster.OpAddNode, RequestID: ident.New(), Node: &node}}}
	for i, dir := range cfg.Dirs {
		d := drive{dir, cluster.Identity{ClusterID: id, Node: 1, NodeName: cfg.Name, Drive: ident.Drive(i + 1), DriveUUID: ident.New(), Incarnation: 1}}
		f.drives = append(f.drives, d)
		f.found.Commands = append(f.found.Commands, &cluster.Command{Op: cluster.OpAddDrive, RequestID: ident.New(),
			Drive: &cluster.Drive{Node: 1, UUID: d.DriveUUID, Path: dir, Capacity: capacity(dir)}})
	}
	if err := writeState(cfg.Dirs[0], credentialsFile, root); err != nil {
		return err
	}
	if err := writeState(cfg.Dirs[0], foundingFile, f.found); err != nil {
		return err
	}
	return f.format(cfg)
}

// format writes the drives, credentials first, identity last.
func (f *folders) format(cfg *Config) error {
	for _, d := range f.drives {
		if err := f.creds.Write(d.dir); err != nil {
			return err
		}
		if err := writeState(d.dir, seedsFile, f.seeds); err != nil {
			return err
		}
		if err := formatStore(cfg, f.creds.Cluster, d); err != nil {
			return err
		}
	}
	for i := len(f.drives) - 1; i >= 0; i-- { // the first folder last: it holds what a founder still has to do
		if err := cluster.WriteIdentity(f.drives[i].dir, f.drives[i].Identity); err != nil {
			return err
		}
	}
	return nil
}

// join asks a member to let this node in, and keeps asking while no member can.
func (f *folders) join(ctx context.Context, cfg *Config, self cluster.Node) error {
	raw, err := os.ReadFile(cfg.TokenFile)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	token, err := pki.ParseToken(string(raw))
	if err != nil {
		return fmt.Errorf("--token-file %s: %w", cfg.TokenFile, err)
	}
	key, csr, err := pki.NewKey()
	if err != nil {
		return err
	}
	req := pki.NewJoinRequest(token, csr)
	req.Name, req.S3, req.Admin, req.Internode, req.Gossip, req.StartID = self.Name, self.S3, self.Admin, self.Internode, self.Gossip, self.StartID
	for _, dir := range cfg.Dirs {
		req.Drives = append(req.Drives, pki.JoinDrive{UUID: ident.New(), Path: dir, Capacity: capacity(dir)})
	}
	body, err := req.Encode()
	if err != nil {
		return err
	}
	reply, err := askToJoin(ctx, cfg, token, body, len(cfg.Dirs))
	if err != nil {
		return err
	}
	if f.creds, err = pki.NewCredentials(reply.ClusterID, reply.Node, reply.CACert, reply.Cert, key, reply.SealKey, reply.GossipKey); err != nil {
		return err
	}
	for _, n := range reply.Nodes {
		f.seeds[n.Node] = n.Internode
	}
	for i, dir := range cfg.Dirs {
		f.drives = append(f.drives, drive{dir, cluster.Identity{ClusterID: reply.ClusterID, Node: reply.Node, NodeName: cfg.Name,
			Drive: reply.Drives[i], DriveUUID: req.Drives[i].UUID, Incarnation: 1}})
	}
	f.sort()
	return f.format(cfg)
}

func askToJoin(ctx context.Context, cfg *Config, token pki.Token, body []byte, drives int) (*pki.JoinReply, error) {
	said, wait := "", time.Second
	for {
		tctx, cancel := context.WithTimeout(ctx, joinTimeout)
		raw, err := wire.CallOnce(tctx, withPort(cfg.Join), pki.JoinConfig(token), pki.ProtoJoin, wire.MethodJoin, body)
		cancel()
		if err == nil {
			return pki.DecodeJoinReply(raw, token, drives)
		}
		if !worthAnotherTry(err) || refusedByPeer(err) {
			return nil, fmt.Errorf("join %s: %w", cfg.Join, err)
		}
		if err.Error() != said {
			said = err.Error()
			cfg.Log.Warn("join is tried again until it succeeds", "member", cfg.Join, "error", err)
		}
		if !pause(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, joinBackoff)
	}
}

// refusedByPeer says whether somebody refused for good, however deep that is wrapped: another cluster at that address.
func refusedByPeer(err error) bool {
	for err != nil {
		var e *oerr.Error
		if !errors.As(err, &e) {
			return false
		}
		if e.Kind == oerr.PermissionDenied {
			return true
		}
		err = e.Err
	}
	return false
}
