package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// Group 0's rows: one letter, then the number (big-endian) or the name. Values are JSON, but the mark's.
// docs/formats/cluster.md has the table.
const (
	rowMark    = 'a' // index and chain of the last entry applied
	rowHeader  = 'c'
	rowSecret  = 'e'
	rowNode    = 'n'
	rowDrive   = 'd'
	rowPG      = 'p'
	rowGroup   = 'g'
	rowBucket  = 'b'
	rowKey     = 'k'
	rowSetting = 's'
	rowToken   = 't'
	rowDedup   = 'q'
	rowRetired = 'x'
)

const (
	keyMark   = string(rune(rowMark))
	keyHeader = string(rune(rowHeader))
	keySecret = string(rune(rowSecret))
)

// change is one row to write; a nil value deletes it.
type change struct {
	key   string
	value []byte
}

// secretRow is how secrets stand in group 0's rows, the only place where they are spelled out.
type secretRow struct {
	CACert    []byte `json:"ca_cert"`
	CAKey     []byte `json:"ca_key"`
	GossipKey []byte `json:"gossip_key"`
}

type credentialRow struct {
	AccessKey string `json:"access_key"`
	Secret    string `json:"secret"`
	Root      bool   `json:"root"`
	Disabled  bool   `json:"disabled"`
}

func numKey(row byte, n uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte{row}, n))
}

func seqKey(row byte, n uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{row}, n))
}

func textKey(row byte, name string) string { return string(rune(row)) + name }

func (s *State) put(key string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cluster: row %q of type %T does not encode: %v", key, v, err)) // all row types are plain data
	}
	s.changes = append(s.changes, change{key, b})
}

func (s *State) del(key string) { s.changes = append(s.changes, change{key, nil}) }

// takeChanges returns the rows changed since it was last called, in the order of the changes.
func (s *State) takeChanges() []change {
	c := s.changes
	s.changes = nil
	return c
}

// mark says which entry the rows reflect. chain is a running hash over all entries, so that a cache of other rows with
// the same index is noticed.
type mark struct{ index, chain uint64 }

func (m mark) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 16), m.index)
	return binary.BigEndian.AppendUint64(b, m.chain)
}

func readMark(r host.Reader) (mark, error) {
	b, ok, err := r.Get([]byte(keyMark))
	if err != nil || !ok {
		return mark{}, err
	}
	if len(b) != 16 {
		return mark{}, oerr.Errorf("cluster.load", oerr.Corrupt, "mark row: read %d bytes, expected 16", len(b))
	}
	return mark{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// loadState reads all rows.
func loadState(r host.Reader) (*State, mark, error) {
	m, err := readMark(r)
	if err != nil {
		return nil, mark{}, err
	}
	s := NewState()
	it, err := r.Iter(nil, nil)
	if err != nil {
		return nil, mark{}, err
	}
	for it.Next() {
		if err := s.loadRow(it.Key(), it.Value()); err != nil {
			it.Close()
			return nil, mark{}, err
		}
	}
	if err := it.Close(); err != nil {
		return nil, mark{}, err
	}
	for i := range s.view.PGs {
		if s.view.PGs[i].ID != ident.PG(i) {
			return nil, mark{}, oerr.Errorf("cluster.load", oerr.Corrupt, "placement group %d has no row", i)
		}
	}
	s.view.Index = m.index
	s.changes = nil
	return s, m, nil
}

// loadRow puts one row into the state through the same functions that apply uses; what they record is dropped.
func (s *State) loadRow(key, value []byte) error {
	s.changes = s.changes[:0]
	if len(key) == 0 {
		return oerr.Errorf("cluster.load", oerr.Corrupt, "row with an empty key")
	}
	var err error
	switch key[0] {
	case rowMark:
	case rowHeader:
		err = loadInto(value, func(h *header) { s.setHead(*h) })
	case rowSecret:
		err = loadInto(value, func(r *secretRow) { s.secret = *r })
	case rowNode:
		err = loadInto(value, s.putNode)
	case rowDrive:
		err = loadInto(value, s.putDrive)
	case rowPG:
		err = loadInto(value, func(p *PG) {
			if p.ID < MaxPGs {
				s.putPG(*p)
			}
		})
	case rowGroup:
		err = loadInto(value, s.putGroup)
	case rowBucket:
		err = loadInto(value, s.putBucket)
	case rowKey:
		err = loadInto(value, func(c *credentialRow) { s.putCredential(*c) })
	case rowSetting:
		err = loadInto(value, func(v *string) { s.view.Setting[string(key[1:])] = *v })
	case rowToken:
		err = loadInto(value, func(t *tokenRow) { s.tokens[t.Hash] = *t })
	case rowDedup, rowRetired:
		err = s.loadWindowRow(key, value)
	default:
		err = fmt.Errorf("unknown kind of row")
	}
	if err != nil {
		return oerr.Errorf("cluster.load", oerr.Corrupt, "row %q: %w", key, err)
	}
	return nil
}

func (s *State) loadWindowRow(key, value []byte) error {
	if len(key) != 9 {
		return fmt.Errorf("read a key of %d bytes, expected 9", len(key))
	}
	seq := binary.BigEndian.Uint64(key[1:])
	if key[0] == rowDedup {
		return loadInto(value, func(r *dedupRow) { s.dedup.add(seq, *r) })
	}
	return loadInto(value, func(id *ident.ID) { s.retired.add(seq, *id) })
}

func loadInto[T any](value []byte, use func(*T)) error {
	v := new(T)
	if err := json.Unmarshal(value, v); err != nil {
		return err
	}
	use(v)
	return nil
}

func (s *State) putCredential(c credentialRow) {
	s.own(partKeys)
	s.view.Keys[c.AccessKey] = &Credential{AccessKey: c.AccessKey, Secret: SecretString(c.Secret), Root: c.Root, Disabled: c.Disabled}
	s.put(textKey(rowKey, c.AccessKey), c)
}
