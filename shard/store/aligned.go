package store

import (
	"sync"

	"golang.org/x/sys/unix"
)

// newAligned maps n bytes, aligned to pages.
func newAligned(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

const headersPerSlab = 64

// headerPool hands out aligned blocks of headerSize. It grows to what one batch and the file writers use at a time, both
// of which are bounded, and gives nothing back before free.
type headerPool struct {
	mu struct {
		sync.Mutex
		free  [][]byte
		slabs [][]byte
	}
}

func (p *headerPool) get() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.free) == 0 {
		slab, err := newAligned(headersPerSlab * headerSize)
		if err != nil { // out of address space or mappings: the heap still works where O_DIRECT is off, else the write fails
			return make([]byte, headerSize)
		}
		p.mu.slabs = append(p.mu.slabs, slab)
		for i := range headersPerSlab {
			p.mu.free = append(p.mu.free, slab[i*headerSize:(i+1)*headerSize:(i+1)*headerSize])
		}
	}
	b := p.mu.free[len(p.mu.free)-1]
	p.mu.free = p.mu.free[:len(p.mu.free)-1]
	return b
}

func (p *headerPool) put(b []byte) {
	p.mu.Lock()
	p.mu.free = append(p.mu.free, b)
	p.mu.Unlock()
}

// release unmaps everything; nothing may be out.
func (p *headerPool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.mu.slabs {
		unix.Munmap(s)
	}
	p.mu.free, p.mu.slabs = nil, nil
}
