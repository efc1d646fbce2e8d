package store

import (
	"container/list"
	"sync"
)

// fdKey names an open file: a shard file, or segment number seg-1 when seg > 0.
type fdKey struct {
	shard rowKey
	seg   uint64
}

func segmentFD(number uint64) fdKey { return fdKey{seg: number + 1} }

// fdEntry is an open file with its users counted; the cache itself is one of them.
type fdEntry struct {
	key  fdKey
	f    File
	crcs []uint32 // of a shard file, from its footer
	refs int
	elem *list.Element // nil once it is out of the cache
}

// fdCache keeps descriptors (and the checksum tables of files) of what was read last.
type fdCache struct {
	maxOpen, maxCRCs int
	mu               struct {
		sync.Mutex
		byKey map[fdKey]*fdEntry
		lru   *list.List // front is newest
		crcs  int
		gen   uint64 // counts forgets: what was opened before one is not cached after it
	}
}

func newFDCache(maxOpen, maxCRCs int) *fdCache {
	c := &fdCache{maxOpen: maxOpen, maxCRCs: maxCRCs}
	c.mu.byKey, c.mu.lru = map[fdKey]*fdEntry{}, list.New()
	return c
}

// get returns the entry with a reference for the caller, nil when it is not open.
func (c *fdCache) get(key fdKey) *fdEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.mu.byKey[key]
	if e != nil {
		e.refs++
		c.mu.lru.MoveToFront(e.elem)
	}
	return e
}

// generation is to be asked before a file is opened for add.
func (c *fdCache) generation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.gen
}

// add puts an open file in and returns its entry with a reference for the caller. When another was quicker, that one
// is returned and f closed.
func (c *fdCache) add(key fdKey, gen uint64, f File, crcs []uint32) *fdEntry {
	c.mu.Lock()
	if gen != c.mu.gen { // f may be a file that was replaced just now: good for this read, not for later ones
		c.mu.Unlock()
		return &fdEntry{key: key, f: f, crcs: crcs, refs: 1}
	}
	var closing []File
	e := c.mu.byKey[key]
	if e == nil {
		e = &fdEntry{key: key, f: f, crcs: crcs, refs: 1}
		e.elem = c.mu.lru.PushFront(e)
		c.mu.byKey[key] = e
		c.mu.crcs += len(crcs)
	} else {
		closing = append(closing, f)
	}
	e.refs++
	for c.mu.lru.Len() > 1 && (c.mu.lru.Len() > c.maxOpen || c.mu.crcs > c.maxCRCs) {
		closing = c.dropLocked(c.mu.lru.Back().Value.(*fdEntry), closing)
	}
	c.mu.Unlock()
	closeAll(closing)
	return e
}

func (c *fdCache) dropLocked(e *fdEntry, closing []File) []File {
	c.mu.lru.Remove(e.elem)
	e.elem = nil
	delete(c.mu.byKey, e.key)
	c.mu.crcs -= len(e.crcs)
	return c.releaseLocked(e, closing)
}

func (c *fdCache) releaseLocked(e *fdEntry, closing []File) []File {
	if e.refs--; e.refs == 0 {
		closing = append(closing, e.f)
	}
	return closing
}

func (c *fdCache) release(e *fdEntry) {
	c.mu.Lock()
	closing := c.releaseLocked(e, nil)
	c.mu.Unlock()
	closeAll(closing)
}

// forget drops a file that was replaced, removed or found wrong; readers that have it keep it until they are done.
func (c *fdCache) forget(key fdKey) {
	c.mu.Lock()
	var closing []File
	c.mu.gen++
	if e := c.mu.byKey[key]; e != nil {
		closing = c.dropLocked(e, nil)
	}
	c.mu.Unlock()
	closeAll(closing)
}

func (c *fdCache) closeAll() {
	c.mu.Lock()
	var closing []File
	for c.mu.lru.Len() > 0 {
		closing = c.dropLocked(c.mu.lru.Back().Value.(*fdEntry), closing)
	}
	c.mu.Unlock()
	closeAll(closing)
}

func (c *fdCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.lru.Len()
}

// closeAll closes files that were only read: an error of close says nothing about what is stored.
func closeAll(files []File) {
	for _, f := range files {
		f.Close()
	}
}
