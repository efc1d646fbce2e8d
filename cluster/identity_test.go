package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"objstore/internal/oerr"
)

func testIdentity() Identity {
	return Identity{Format: identityFormat, ClusterID: testID(1), Node: 2, NodeName: "n2", Drive: 3, DriveUUID: testID(4), Incarnation: 1}
}

func TestAFolderIsEmptyOursOrRefusedByName(t *testing.T) {
	write := func(name, content string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) }
	}
	for _, c := range []struct {
		name  string
		make  func(dir string) error
		state FolderState
		kind  oerr.Kind
		says  string
	}{
		{"empty", func(string) error { return nil }, FolderEmpty, 0, ""},
		{"lost+found only", func(dir string) error { return os.Mkdir(filepath.Join(dir, "lost+found"), 0o700) }, FolderEmpty, 0, ""},
		{"lock only", write(LockFile, "1"), FolderEmpty, 0, ""},
		{"credentials put down before the identity", write("node.json", "{}"), FolderEmpty, 0, ""},
		{"torn identity beside", write(IdentityFile+".tmp", "{"), FolderEmpty, 0, ""},
		{"ours", func(dir string) error { return WriteIdentity(dir, testIdentity()) }, FolderOurs, 0, ""},
		{"somebody's files", write("thesis.tex", "x"), 0, oerr.InvalidArgument, `"thesis.tex" but no objstore.json`},
		{"damaged", write(IdentityFile, `{"format":1`), 0, oerr.Corrupt, "damaged identity"},
		{"empty identity", write(IdentityFile, ""), 0, oerr.Corrupt, "damaged identity"},
		{"later format", write(IdentityFile, `{"format":2}`), 0, oerr.Corrupt, "read format 2, expected 1"},
		{"without numbers", write(IdentityFile, `{"format":1,"cluster_id":"00000000000000000000000000000001","drive_uuid":"00000000000000000000000000000001","node_name":"a"}`), 0, oerr.Corrupt, "node 0, drive 0"},
		{"huge identity", write(IdentityFile, strings.Repeat(" ", maxIdentityBytes+1)), 0, oerr.Internal, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			state, id, err := CheckFolder(dir, "node.json")
			if c.says == "" {
				if err != nil || state != c.state {
					t.Fatalf("state %d, %v; expected state %d", state, err, c.state)
				}
				if state == FolderOurs && id != testIdentity() {
					t.Fatalf("read %+v", id)
				}
				return
			}
			if !oerr.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("answered %v; expected kind %s, the folder and %q", err, c.kind, c.says)
			}
		})
	}
	if _, _, err := CheckFolder(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent folder was accepted")
	}
}

func TestFoldersOfOneNodeMustAgree(t *testing.T) {
	with := func(change func(*Identity)) Identity { id := testIdentity(); change(&id); return id }
	other := with(func(i *Identity) { i.Drive, i.DriveUUID = 9, testID(9) })
	if err := CheckIdentities(map[string]Identity{"/a": testIdentity(), "/b": other}); err != nil {
		t.Fatal(err)
	}
	for says, id := range map[string]Identity{
		"belongs to cluster": with(func(i *Identity) { i.ClusterID = testID(8); i.Drive, i.DriveUUID = 9, testID(9) }),
		"belongs to node 7":  with(func(i *Identity) { i.Node = 7; i.Drive, i.DriveUUID = 9, testID(9) }),
		"one is a copy":      testIdentity(),
	} {
		err := CheckIdentities(map[string]Identity{"/a": testIdentity(), "/b": id})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "/b") {
			t.Errorf("answered %v, expected %q and /b", err, says)
		}
	}
}

func TestAnIdentityIsHeldAgainstGroupZero(t *testing.T) {
	d := clusterOf(t, 3, 1)
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 2, Incarnation: 2, UUID: testID(5)}})
	d.ok(Command{Op: OpDriveState, Drive: &Drive{ID: 3, Incarnation: 1, State: DriveRemoved}})
	v := d.s.View()
	good := Identity{Format: 1, ClusterID: testID(1), Node: 1, NodeName: "n1", Drive: 1, DriveUUID: testID(100_100), Incarnation: 1}
	if err := CheckAgainstView("/d", good, v); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Identity)
		kind   oerr.Kind
	}{
		"foreign cluster":   {func(i *Identity) { i.ClusterID = testID(2) }, oerr.InvalidArgument},
		"unknown drive":     {func(i *Identity) { i.Drive = 77 }, oerr.Unavailable},
		"other node":        {func(i *Identity) { i.Node = 2 }, oerr.InvalidArgument},
		"other uuid":        {func(i *Identity) { i.DriveUUID = testID(2) }, oerr.WrongIncarnation},
		"older incarnation": {func(i *Identity) { i.Node, i.Drive, i.DriveUUID = 2, 2, testID(100_200) }, oerr.WrongIncarnation},
		"removed":           {func(i *Identity) { i.Node, i.Drive, i.DriveUUID = 3, 3, testID(100_300) }, oerr.InvalidArgument},
	} {
		id := good
		c.change(&id)
		if err := CheckAgainstView("/d", id, v); !oerr.Is(err, c.kind) {
			t.Errorf("%s: answered %v, expected %s", name, err, c.kind)
		}
	}
}

func TestAFolderIsLockedOnce(t *testing.T) {
	dir := t.TempDir()
	l, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFolder(dir); !oerr.Is(err, oerr.Busy) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("a second lock was answered %v, expected busy with the folder's name", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestFoldersThatWouldFailTogetherAreRefusedByName(t *testing.T) {
	base := t.TempDir()
	dir := func(name string) string {
		p := filepath.Join(base, name)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b, in := dir("a"), dir("b"), dir("a/in")
	link := filepath.Join(base, "link")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckDevices([]string{a, b}, true); err != nil {
		t.Fatal(err)
	}
	if err := CheckDevices([]string{a}, false); err != nil {
		t.Fatal(err)
	}
	for says, c := range map[string]struct {
		dirs  []string
		allow bool
	}{
		"on one device": {[]string{a, b}, false}, "same folder": {[]string{a, link}, true}, "inside the other": {[]string{in, a}, true},
		"not a folder": {[]string{file}, true}, "no such file": {[]string{filepath.Join(base, "absent")}, true},
	} {
		err := CheckDevices(c.dirs, c.allow)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), c.dirs[len(c.dirs)-1]) {
			t.Errorf("%v: answered %v, expected %q", c.dirs, err, says)
		}
	}
}

func FuzzDecodeIdentity(f *testing.F) {
	good, err := EncodeIdentity(testIdentity())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"format":1,"node":4294967296}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := DecodeIdentity(data)
		if err != nil {
			if !oerr.IsCorrupt(err) {
				t.Fatalf("a damaged identity is reported as %v", err)
			}
			return
		}
		again, err := EncodeIdentity(id)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeIdentity(again); err != nil || back != id {
			t.Fatalf("%+v became %+v, %v", id, back, err)
		}
	})
}
