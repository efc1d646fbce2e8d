package devcluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// layout is layout.json: what the folder was made with.
type layout struct {
	Nodes    int    `json:"nodes"`
	Drives   int    `json:"drives"`
	Host     string `json:"host"`
	BasePort int    `json:"base_port"`
}

// Remember fills in what dir was made with where the caller has no wish of its own (0 or ""). A folder that is not
// there or is empty remembers nothing.
func Remember(dir string, c *Config) error {
	var l layout
	if err := readJSON(filepath.Join(dir, layoutFile), &l); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if c.Nodes == 0 {
		c.Nodes = l.Nodes
	}
	if c.Drives == 0 {
		c.Drives = l.Drives
	}
	if c.Host == "" {
		c.Host = l.Host
	}
	if c.BasePort == 0 {
		c.BasePort = l.BasePort
	}
	if c.Nodes != l.Nodes || c.Drives != l.Drives {
		return fmt.Errorf("%s holds a cluster of %d nodes with %d drives each; read %d nodes and %d drives", dir, l.Nodes, l.Drives, c.Nodes, c.Drives)
	}
	return nil
}

// lockDir makes the folder and takes its lock, which goes with the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: another objstore dev runs on this folder: %w", dir, err)
	}
	return f, nil
}

// credentials reads the root credential of the folder, or makes and keeps one before any node starts, so that it can
// not be lost between the cluster's making and its keeping.
func (c *Config) credentials() (*Credentials, error) {
	got, err := ReadCredentials(c.Dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return got, err
	}
	got = &Credentials{AccessKey: c.AccessKey, SecretKey: c.SecretKey, Region: c.Region}
	if got.AccessKey == "" {
		got.AccessKey, got.SecretKey = "OBJ"+rand.Text()[:17], rand.Text()+rand.Text()[:14]
	}
	return got, writeJSON(filepath.Join(c.Dir, credentialFile), got)
}

// hasIdentity reports whether the node was a member before.
func (s *spec) hasIdentity() bool {
	for _, d := range s.dirs {
		if _, err := os.Stat(filepath.Join(d, identityFile)); err == nil {
			return true
		}
	}
	return false
}

// checkPorts finds ports that somebody else listens on, before a node fails on one.
func (s *spec) checkPorts() error {
	var problems []error
	for i, addr := range s.addr {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			err = l.Close()
		}
		if err == nil && i == portGossip {
			var u net.PacketConn
			if u, err = net.ListenPacket("udp", addr); err == nil {
				err = u.Close()
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s of %s wants %s: %w (choose another --base-port)", portName(i), s.name, addr, err))
		}
	}
	return errors.Join(problems...)
}
