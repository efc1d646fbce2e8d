package store

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// indexFS is the operating system's file system that remembers what is open: Pebble (v2.1.7) does not close its log
// when the last write to it fails, and a drive that failed could not be unmounted while this process lives.
type indexFS struct {
	vfs.FS
	mu   sync.Mutex
	open map[*indexFile]bool
}

func newIndexFS() *indexFS { return &indexFS{FS: vfs.Default, open: map[*indexFile]bool{}} }

type indexFile struct {
	vfs.File
	fs *indexFS
}

func (f *indexFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.open, f)
	f.fs.mu.Unlock()
	return f.File.Close()
}

func (x *indexFS) track(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	t := &indexFile{f, x}
	x.mu.Lock()
	x.open[t] = true
	x.mu.Unlock()
	return t, nil
}

// closeRest closes what was left open and returns how many files that were.
func (x *indexFS) closeRest() int {
	x.mu.Lock()
	rest := x.open
	x.open = map[*indexFile]bool{}
	x.mu.Unlock()
	for f := range rest {
		f.File.Close()
	}
	return len(rest)
}

func (x *indexFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return x.track(x.FS.Create(name, c))
}

func (x *indexFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return x.track(x.FS.Open(name, opts...))
}

func (x *indexFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return x.track(x.FS.OpenReadWrite(name, c, opts...))
}

func (x *indexFS) OpenDir(name string) (vfs.File, error) { return x.track(x.FS.OpenDir(name)) }

func (x *indexFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return x.track(x.FS.ReuseForWrite(old, name, c))
}
