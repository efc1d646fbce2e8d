package store

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// FS is the file system under a store, as far as shards go. Tests put faults between it and the operating system.
// Errors wrap the syscall.Errno.
type FS interface {
	Open(path string, flags int) (File, error)
	Mkdir(path string) error // one that exists is fine
	Remove(path string) error
	Rename(from, to string) error
	ReadDir(path string) ([]string, error) // names, sorted
	SyncDir(path string) error
	Statfs(path string) (Usage, error)
}

// Usage is what statfs says, in bytes.
type Usage struct{ Total, Free uint64 }

// File is an open file. Methods are safe for concurrent use, as the system calls behind them are.
type File interface {
	// Pwritev writes the buffers one after the other at off. It may write less than all.
	Pwritev(bufs [][]byte, off int64) (int, error)
	// Pread reads until b is full or the file ends; n < len(b) with a nil error is the end.
	Pread(b []byte, off int64) (n int, err error)
	// PreadCached reads what can be had without waiting for the device: 0 when nothing can.
	PreadCached(b []byte, off int64) (n int)
	Fdatasync() error
	Fallocate(mode uint32, off, n int64) error
	Fadvise(off, n int64, advice int)
	SeekData(off int64) (int64, error) // ENXIO when only a hole follows
	Size() (int64, error)
	Close() error
}

// writeFull writes all of bufs at off; short writes are continued. bufs is used up.
func writeFull(f File, bufs [][]byte, off int64) error {
	for len(bufs) > 0 {
		n, err := f.Pwritev(bufs[:min(len(bufs), maxIOV)], off)
		if err != nil {
			return err
		}
		if n <= 0 {
			return fmt.Errorf("pwritev at %d: wrote %d bytes: %w", off, n, io.ErrShortWrite)
		}
		off += int64(n)
		for n > 0 && len(bufs) > 0 {
			if n < len(bufs[0]) {
				bufs[0] = bufs[0][n:]
				break
			}
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
	}
	return nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isTransient is true for failures that say nothing about the drive: the process ran out of something.
func isTransient(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

func isNotExist(err error) bool { return errors.Is(err, syscall.ENOENT) }
