package store

import (
	"strings"
	"sync"
)

// fault decides what happens to an operation on a path: an error fails it before it has any effect. It may block.
type fault func(op, path string) error

// faultFS puts a fault function between a store and the operating system. Operations are open, mkdir, unlink, rename,
// readdir, syncdir, statfs, pwritev, pread, fdatasync, fallocate; short is a pwritev that writes one page less.
type faultFS struct {
	FS
	mu   sync.Mutex
	f    fault
	seen map[string]int
}

func newFaultFS() *faultFS { return &faultFS{FS: OS(), seen: map[string]int{}} }

func (x *faultFS) set(f fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.f = f
}

func (x *faultFS) count(op string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen[op]
}

func (x *faultFS) do(op, path string) error {
	x.mu.Lock()
	f := x.f
	x.seen[op]++
	x.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, path)
}

// failOn fails one operation on paths that contain part.
func failOn(op, part string, err error) fault {
	return func(o, path string) error {
		if o == op && strings.Contains(path, part) {
			return err
		}
		return nil
	}
}

func (x *faultFS) Open(path string, flags int) (File, error) {
	if err := x.do("open", path); err != nil {
		return nil, err
	}
	f, err := x.FS.Open(path, flags)
	if err != nil {
		return nil, err
	}
	return &faultFile{f, x, path}, nil
}

func (x *faultFS) Remove(path string) error {
	if err := x.do("unlink", path); err != nil {
		return err
	}
	return x.FS.Remove(path)
}

func (x *faultFS) Rename(from, to string) error {
	if err := x.do("rename", from); err != nil {
		return err
	}
	return x.FS.Rename(from, to)
}

func (x *faultFS) ReadDir(path string) ([]string, error) {
	if err := x.do("readdir", path); err != nil {
		return nil, err
	}
	return x.FS.ReadDir(path)
}

func (x *faultFS) SyncDir(path string) error {
	if err := x.do("syncdir", path); err != nil {
		return err
	}
	return x.FS.SyncDir(path)
}

func (x *faultFS) Statfs(path string) (Usage, error) {
	if err := x.do("statfs", path); err != nil {
		return Usage{}, err
	}
	return x.FS.Statfs(path)
}

type faultFile struct {
	File
	fs   *faultFS
	path string
}

func (f *faultFile) Pwritev(bufs [][]byte, off int64) (int, error) {
	if err := f.fs.do("pwritev", f.path); err != nil {
		return 0, err
	}
	if f.fs.do("short", f.path) != nil && len(bufs[0]) > headerSize {
		return f.File.Pwritev([][]byte{bufs[0][:len(bufs[0])-headerSize]}, off)
	}
	return f.File.Pwritev(bufs, off)
}

func (f *faultFile) Pread(b []byte, off int64) (int, error) {
	if err := f.fs.do("pread", f.path); err != nil {
		return 0, err
	}
	return f.File.Pread(b, off)
}

// PreadCached never has anything when reads are under test, so that they go to the device.
func (f *faultFile) PreadCached(b []byte, off int64) int {
	if f.fs.do("cached", f.path) != nil {
		return 0
	}
	return f.File.PreadCached(b, off)
}

func (f *faultFile) Fdatasync() error {
	if err := f.fs.do("fdatasync", f.path); err != nil {
		return err
	}
	return f.File.Fdatasync()
}

func (f *faultFile) Fallocate(mode uint32, off, n int64) error {
	if err := f.fs.do("fallocate", f.path); err != nil {
		return err
	}
	return f.File.Fallocate(mode, off, n)
}
