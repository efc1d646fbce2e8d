package cluster

import (
	"encoding/binary"
	"sync"

	"github.com/cespare/xxhash/v2"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// MachineConfig configures a Machine.
type MachineConfig struct {
	// OnView is called with each new view, in order and never concurrently. It must not block and not call the Machine.
	OnView func(*View)
	// Read calls f with a reader of group 0's applied rows (host.API.View). With it, Applied notices by itself that a
	// snapshot has replaced the rows. Optional: without it call Load after a snapshot was installed.
	Read func(f func(r host.Reader) error) error
}

// Machine is group 0's state machine over its replica's rows. The State it keeps in memory is a cache of the rows: it
// is used only while the mark row says that it is theirs, so snapshots, restarts and lost batches need no notice.
type Machine struct {
	cfg MachineConfig
	mu  struct {
		sync.Mutex
		state   *State
		mark    mark
		seen    uint64 // index of the newest published view
		applied uint64 // newest index handed to Apply since the last Applied
	}
}

var _ host.StateMachine = (*Machine)(nil)

// NewMachine returns a machine with no state; it reads the rows when it first needs them.
func NewMachine(cfg MachineConfig) *Machine {
	m := &Machine{cfg: cfg}
	m.mu.state = NewState()
	return m
}

// LoadView reads group 0's state from its rows.
func LoadView(r host.Reader) (*View, error) {
	s, _, err := loadState(r)
	if err != nil {
		return nil, oerr.Wrap("cluster.load_view", err)
	}
	return s.View(), nil
}

// Load reads the rows and publishes their view: at start, and after a snapshot was installed.
func (m *Machine) Load(r host.Reader) (*View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refreshLocked(r); err != nil {
		return nil, oerr.Wrap("cluster.load", err)
	}
	return m.publishLocked(0), nil
}

// Apply applies one committed entry. What cannot be decoded is refused, not an error: it must not stop the replicas.
func (m *Machine) Apply(rw host.ReadWriter, group ident.Group, index uint64, data []byte) ([]byte, error) {
	if group != 0 {
		return nil, oerr.Errorf("cluster.apply", oerr.Internal, "entry of group %d, expected group 0", group)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refreshLocked(rw); err != nil {
		return nil, oerr.Wrap("cluster.apply", err)
	}
	if index <= m.mu.mark.index {
		return nil, oerr.Errorf("cluster.apply", oerr.Internal, "entry %d, but the rows reflect entry %d already", index, m.mu.mark.index)
	}
	s := m.mu.state
	var res CommandResult
	if cmd, err := DecodeCommand(data); err != nil {
		s.view.Index = index
		res = refuse(oerr.InvalidArgument, "%v", err)
		res.Index = index
	} else {
		res = s.applyAt(index, cmd)
	}
	next := mark{index: index, chain: chainHash(m.mu.mark.chain, data)}
	if err := writeChanges(rw, s.takeChanges(), next); err != nil {
		m.mu.mark = mark{} // the cache is ahead of the rows: read them again
		m.mu.state = NewState()
		return nil, oerr.Wrap("cluster.apply", err)
	}
	m.mu.mark, m.mu.applied = next, index
	return res.Encode()
}

func writeChanges(rw host.ReadWriter, changes []change, m mark) error {
	for _, c := range changes {
		var err error
		if c.value == nil {
			err = rw.Delete([]byte(c.key))
		} else {
			err = rw.Set([]byte(c.key), c.value)
		}
		if err != nil {
			return err
		}
	}
	return rw.Set([]byte(keyMark), m.encode())
}

func chainHash(prev uint64, data []byte) uint64 {
	d := xxhash.New()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], prev)
	d.Write(b[:])
	d.Write(data)
	return d.Sum64()
}

// refreshLocked reads the state anew if the rows are not those it was made of.
func (m *Machine) refreshLocked(r host.Reader) error {
	have, err := readMark(r)
	if err != nil {
		return err
	}
	if have == m.mu.mark {
		return nil
	}
	s, have, err := loadState(r)
	if err != nil {
		return err
	}
	m.mu.state, m.mu.mark = s, have
	return nil
}

// Stamp puts the leader's clock into a command. What does not decode goes on as it is; apply refuses it.
func (m *Machine) Stamp(data []byte, nowMS int64) []byte {
	cmd, err := DecodeCommand(data)
	if err != nil {
		return data
	}
	cmd.Now = nowMS
	if b, err := cmd.Encode(); err == nil {
		return b
	}
	return data
}

// Applied publishes the view after a batch. Its Index is that of the batch, whoever its last entry belonged to.
func (m *Machine) Applied(group ident.Group, index uint64) {
	if group != 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Read != nil && m.mu.applied != index {
		// The last entry was not a command, or there was none: a snapshot may have replaced the rows. An error leaves
		// the old view in place; the store that cannot be read stops the replica by itself.
		_ = m.cfg.Read(m.refreshLocked)
	}
	m.publishLocked(index)
}

func (m *Machine) publishLocked(index uint64) *View {
	v := m.mu.state.View()
	v.Index = max(v.Index, index)
	if v.Index < m.mu.seen {
		return v // never publish an older one
	}
	m.mu.seen = v.Index
	if m.cfg.OnView != nil {
		m.cfg.OnView(v)
	}
	return v
}
