// Package durable writes small files so that a power loss leaves the old or the new content, never a part of either.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// TempSuffix ends the name of a file that is being written. A crash may leave one behind; it means nothing.
const TempSuffix = ".tmp"

// WriteFile replaces path by data: a temporary file beside it is written and synced, renamed over it, and the folder is
// synced, without which the rename itself may be lost (measured on ext4 and XFS).
func WriteFile(path string, data []byte, perm os.FileMode) (err error) {
	tmp := path + TempSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err = os.Rename(tmp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// ReadFile reads path whole, and refuses more than limit bytes.
func ReadFile(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("%s: read more than %d bytes", path, limit)
	}
	return data, nil
}
