package devcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State is dev.json: what a running dev cluster is and how to reach it. It exists only while every node was ready.
type State struct {
	AccessKey string      `json:"access_key"`
	SecretKey string      `json:"secret_key"`
	Region    string      `json:"region"`
	Nodes     []NodeState `json:"nodes"`
}

// NodeState is one node. The pid is that of its last process, which may be dead.
type NodeState struct {
	Name      string   `json:"name"`
	PID       int      `json:"pid"`
	S3        string   `json:"s3"`        // http://IP:PORT
	Admin     string   `json:"admin"`     // http://IP:PORT
	Internode string   `json:"internode"` // IP:PORT
	Data      []string `json:"data"`      // absolute paths
}

// Credentials is credentials.json: the root credential.
type Credentials struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Region    string `json:"region"`
}

const (
	stateFile      = "dev.json"
	credentialFile = "credentials.json"
	layoutFile     = "layout.json"
	lockFile       = "lock"
	socketFile     = "dev.sock"
	identityFile   = "objstore.json" // on each drive; written by the server
	maxStateFile   = 1 << 20         // bytes
)

// ReadState reads the dev.json of a running dev cluster in dir.
func ReadState(dir string) (*State, error) {
	s := new(State)
	err := readJSON(filepath.Join(dir, stateFile), s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no dev cluster is running in %s: %w", dir, err)
	}
	if err == nil && len(s.Nodes) == 0 {
		err = fmt.Errorf("%s: read no nodes, expected at least one", filepath.Join(dir, stateFile))
	}
	return s, err
}

// Endpoints is endpoints.json: where the node of a data folder serves. The server writes it at each start.
type Endpoints struct {
	S3    string `json:"s3"`
	Admin string `json:"admin"`
}

// ReadEndpoints reads dir/endpoints.json.
func ReadEndpoints(dir string) (*Endpoints, error) {
	e := new(Endpoints)
	return e, readJSON(filepath.Join(dir, "endpoints.json"), e)
}

// ReadCredentials reads dir/credentials.json.
func ReadCredentials(dir string) (*Credentials, error) {
	c := new(Credentials)
	path := filepath.Join(dir, credentialFile)
	err := readJSON(path, c)
	if err == nil && (c.AccessKey == "" || c.SecretKey == "") {
		err = fmt.Errorf("%s: read no access_key or secret_key, expected both", path)
	}
	return c, err
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() > maxStateFile {
		return fmt.Errorf("%s: read %d bytes, expected at most %d: %w", path, st.Size(), maxStateFile, err)
	}
	if err := json.NewDecoder(f).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces path in one step, readable by the owner only.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// removeIfThere removes a file that may not exist.
func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
