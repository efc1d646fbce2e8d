package cluster

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
)

// CheckDevices refuses data folders that would fail together: the same folder twice, one inside another, and, unless
// allowShared, two on one device. Folders must exist.
func CheckDevices(dirs []string, allowShared bool) error {
	const op = "cluster.check_devices"
	type place struct {
		dir, real string
		dev, ino  uint64
	}
	seen := make([]place, 0, len(dirs))
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s: %w", dir, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(real, &st); err != nil {
			return oerr.E(op, oerr.InvalidArgument, &os.PathError{Op: "stat data folder", Path: dir, Err: err})
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return oerr.Errorf(op, oerr.InvalidArgument, "data folder %s is not a folder", dir)
		}
		p := place{dir, real, uint64(st.Dev), st.Ino}
		for _, o := range seen {
			switch {
			case o.dev == p.dev && o.ino == p.ino:
				return oerr.Errorf(op, oerr.InvalidArgument, "data folders %s and %s are the same folder", o.dir, dir)
			case inside(o.real, real) || inside(real, o.real):
				return oerr.Errorf(op, oerr.InvalidArgument, "data folders %s and %s: one is inside the other", o.dir, dir)
			case o.dev == p.dev && !allowShared:
				return oerr.Errorf(op, oerr.InvalidArgument,
					"data folders %s and %s are on one device (%d:%d) and would fail together: give folders on different drives, or allow it with --allow-shared-device",
					o.dir, dir, unix.Major(p.dev), unix.Minor(p.dev))
			}
		}
		seen = append(seen, p)
	}
	return nil
}

func inside(parent, child string) bool {
	rel, err := filepath.Rel(parent, child)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
