package devcluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"
)

// Limits.
const (
	MaxNodes     = 32
	MaxDrives    = 16 // for each node
	portsPerNode = 10 // node i uses BasePort + 10*(i-1) and the three ports after it

	readyTimeout = 60 * time.Second // from the start to all nodes ready
	stopGrace    = 7 * time.Second  // from SIGTERM to SIGKILL; the whole stop is over within 10 s
	killWait     = 5 * time.Second  // for a process to be gone after SIGKILL
	pollInterval = 50 * time.Millisecond
	maxLog       = 32 << 20 // bytes; a log larger than this is set aside once at the node's next start
)

// Config is one cluster.
type Config struct {
	Dir      string // everything lies in it
	Nodes    int
	Drives   int    // for each node
	Host     string // a local address: every listener is on it
	BasePort int
	Region   string
	Exec     string   // the binary; its first argument will be "server"
	Env      []string // of the children
	Out      io.Writer

	AccessKey, SecretKey string // of a cluster that is being made; "" generates them
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var p []error
	if c.Dir == "" {
		p = append(p, errors.New("dir: none given"))
	}
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		p = append(p, fmt.Errorf("nodes: read %d, expected 1 to %d", c.Nodes, MaxNodes))
	}
	if c.Drives < 1 || c.Drives > MaxDrives {
		p = append(p, fmt.Errorf("drives: read %d, expected 1 to %d", c.Drives, MaxDrives))
	}
	if net.ParseIP(c.Host) == nil {
		p = append(p, fmt.Errorf("host: read %q, expected an IP address of this machine", c.Host))
	}
	if last := c.BasePort + portsPerNode*(max(c.Nodes, 1)-1) + 3; c.BasePort < 1 || last > 65535 {
		p = append(p, fmt.Errorf("base-port: read %d, expected 1 to %d for %d nodes", c.BasePort, 65535-portsPerNode*(max(c.Nodes, 1)-1)-3, c.Nodes))
	}
	return errors.Join(p...)
}

// spec is where one node lies and listens.
type spec struct {
	index int // from 1
	name  string
	home  string // its folder
	dirs  []string
	addr  [4]string // S3, admin, internode, gossip
}

const (
	portS3 = iota
	portAdmin
	portInternode
	portGossip
)

// portNames index by the constants above.
func portName(i int) string { return [...]string{"s3", "admin", "internode", "gossip"}[i] }

func (c *Config) spec(i int) spec {
	s := spec{index: i, name: fmt.Sprintf("n%d", i)}
	s.home = filepath.Join(c.Dir, s.name)
	for d := 1; d <= c.Drives; d++ {
		s.dirs = append(s.dirs, filepath.Join(s.home, fmt.Sprintf("d%d", d)))
	}
	for p := range s.addr {
		s.addr[p] = net.JoinHostPort(c.Host, fmt.Sprint(c.BasePort+portsPerNode*(i-1)+p))
	}
	return s
}

// arguments of the server process. join holds the flags of a node that has no identity yet.
func (s *spec) arguments(join []string) []string {
	args := []string{"server", "--name", s.name, "--s3", s.addr[portS3], "--admin", s.addr[portAdmin],
		"--internode", s.addr[portInternode], "--gossip", s.addr[portGossip], "--allow-shared-device"}
	return append(append(args, join...), s.dirs...)
}
