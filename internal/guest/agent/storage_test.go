// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestStorageOptions is what Kata's shims (3.x) send for volumes of a pod, and
// what becomes of it; what nobody knows is an error and never left out.
func TestStorageOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		sent *agent.Storage
		want *agent.Storage
		err  string
	}{
		{"emptyDir", &agent.Storage{Driver: driverLocal, Options: []string{"mode=0777"}}, &agent.Storage{Driver: driverLocal, Options: []string{"mode=0777"}}, ""},
		{
			"emptyDir of an fsGroup", &agent.Storage{Driver: driverLocal, Options: []string{"mode=0777", "fsgid=2000"}},
			&agent.Storage{Driver: driverLocal, Options: []string{"mode=0777"}, FsGroup: &agent.FSGroup{GroupId: 2000, GroupChangePolicy: agent.FSGroupChangePolicy_OnRootMismatch}}, "",
		},
		{
			"emptyDir in memory", &agent.Storage{Driver: driverEphemeral, Fstype: "tmpfs", Options: []string{"fsgid=7", "size=1048576"}},
			&agent.Storage{Driver: driverEphemeral, Fstype: "tmpfs", Options: []string{"size=1048576"}, FsGroup: &agent.FSGroup{GroupId: 7, GroupChangePolicy: agent.FSGroupChangePolicy_OnRootMismatch}}, "",
		},
		{"not a number", &agent.Storage{Driver: driverLocal, Options: []string{"fsgid=root"}}, nil, "is not a group"},
		{"two answers", &agent.Storage{Driver: driverLocal, Options: []string{"fsgid=7"}, FsGroup: &agent.FSGroup{GroupId: 8}}, nil, "fs_group is 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := withFSGroup(c.sent)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	folder := filepath.Join(t.TempDir(), "new")
	for _, when := range []string{"first", "again"} {
		if err := makeLocal(folder, &agent.Storage{Options: []string{"quota=5"}}); err == nil || !strings.Contains(err.Error(), `"quota=5"`) {
			t.Errorf("%s: an option that is not known: %v", when, err)
		}
	}
}

// TestFSGroupStaysInTheVolume: the pod makes links while its volume is given to
// a group.
func TestFSGroupStaysInTheVolume(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	volume := t.TempDir()
	for path, mode := range map[string]fs.FileMode{outside: 0o600, filepath.Join(volume, "file"): 0o600, filepath.Join(volume, "script"): 0o700} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	gid := os.Getgid() // what anybody may give his files to
	if err := applyFSGroup(volume, &agent.FSGroup{GroupId: uint32(gid)}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		volume: fs.ModeDir | fs.ModeSetgid | 0o770, filepath.Join(volume, "file"): 0o660, filepath.Join(volume, "script"): 0o770, outside: 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ 0o007; got != want || int(info.Sys().(*syscall.Stat_t).Gid) != gid {
			t.Errorf("%s is %v, want %v", path, info.Mode(), want)
		}
	}
	if !groupOwns(volume, gid) {
		t.Error("the volume is not the group's")
	}
}

// TestNFSRefused is what never gets to mount(2): the folders beside are emptied at the pod's end.
func TestNFSRefused(t *testing.T) {
	a := &Agent{cfg: Config{Root: t.TempDir()}}
	for target, s := range map[string]*agent.Storage{
		filepath.Join(a.cfg.Root, "shared/x"):                 {Fstype: "nfs4"},
		filepath.Join(a.cfg.Root, networkVolumes, "deeper/x"): {Fstype: "nfs4"},
		filepath.Join(a.cfg.Root, networkVolumes, "x"):        {Fstype: "ext4"},
	} {
		want := map[string]string{"nfs4": "cannot be mounted there, but in /run/kata-containers/network-volumes", "ext4": `file system "ext4" is not NFS`}[s.Fstype]
		if err := a.mountNFS(target, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s at %s: error %v, want %q", s.Fstype, target, err, want)
		}
	}
	for options, want := range map[string]string{
		"vers=4.2,addr=192.0.2.1":                "192.0.2.1:2049",
		"vers=4.0,port=7,addr=2001:db8::1":       "[2001:db8::1]:7",
		"vers=3,mountport=20048,addr=192.0.2.1":  "", // the server's rpcbind knows it
		"vers=3,addr=192.0.2.1,port=2050,nolock": "192.0.2.1:2050",
	} {
		if got := nfsServer(strings.Split(options, ",")); got != want {
			t.Errorf("%s: server %q, want %q", options, got, want)
		}
	}
}
