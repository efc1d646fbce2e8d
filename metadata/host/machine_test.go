package host

import (
	"encoding/binary"
	"fmt"

	"objstore/internal/ident"
)

// register is the state machine of the tests: a map of registers with compare-and-set. It remembers every request, so
// that a test can ask which were applied, and where. Commands are op (1), request (8), old (8), new (8), key.
type register struct {
	onApply func(g ident.Group, index uint64, data []byte) // may be nil
	fail    func(g ident.Group, index uint64) error        // may be nil
}

const (
	opSet = 1
	opCAS = 2
)

func command(op byte, request, old, new uint64, key string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{op}, request)
	b = binary.BigEndian.AppendUint64(b, old)
	b = binary.BigEndian.AppendUint64(b, new)
	return append(b, key...)
}

func registerKey(key string) []byte { return []byte("k/" + key) }

func requestKey(request uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("r/"), request)
}

func (m *register) Apply(rw ReadWriter, g ident.Group, index uint64, data []byte) ([]byte, error) {
	if m.onApply != nil {
		m.onApply(g, index, data)
	}
	if m.fail != nil {
		if err := m.fail(g, index); err != nil {
			return nil, err
		}
	}
	if len(data) < 25 {
		return nil, fmt.Errorf("command of %d bytes", len(data))
	}
	request, old, new := binary.BigEndian.Uint64(data[1:]), binary.BigEndian.Uint64(data[9:]), binary.BigEndian.Uint64(data[17:])
	key := registerKey(string(data[25:]))
	if err := rw.Set(requestKey(request), binary.BigEndian.AppendUint64(nil, index)); err != nil {
		return nil, err
	}
	if data[0] == opCAS {
		cur := uint64(0)
		v, ok, err := rw.Get(key)
		if err != nil {
			return nil, err
		}
		if ok {
			cur = binary.BigEndian.Uint64(v)
		}
		if cur != old {
			return []byte{0}, nil
		}
	}
	return []byte{1}, rw.Set(key, binary.BigEndian.AppendUint64(nil, new))
}

func (m *register) Stamp(data []byte, _ int64) []byte { return data }

func (m *register) Applied(ident.Group, uint64) {}
