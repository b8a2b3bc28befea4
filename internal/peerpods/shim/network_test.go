// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// nodeTable is /proc/self/mountinfo of a node (proc_pid_mountinfo(5)); the kubelet has its folders in ROOT. The
// options of NFS and the sources of subPaths are as Linux 6.1 shows them.
const nodeTable = `22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=1k
40 22 0:50 / ROOT/pods/u/volumes/kubernetes.io~nfs/share rw,nosuid,relatime shared:9 - nfs4 nas.example:/export rw,seclabel,context="system_u:object_r:container_file_t:s0:c1,c2",vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=192.0.2.7,local_lock=none,addr=192.0.2.1
41 22 0:50 / ROOT/pods/u/volume-subpaths/share/app/0 rw,nosuid,relatime shared:9 - nfs4 nas.example:/export/a\040b/c rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=192.0.2.7,local_lock=none,addr=192.0.2.1
42 22 0:51 / ROOT/pods/u/volumes/kubernetes.io~csi/pv/mount ro,relatime - nfs nas.example:/old/pv rw,vers=3,rsize=65536,wsize=65536,namlen=255,soft,nolock,proto=tcp6,timeo=50,retrans=3,sec=sys,mountaddr=2001:db8::1,mountvers=3,mountport=20048,mountproto=tcp6,local_lock=all,addr=2001:db8::1
43 22 0:51 / ROOT/pods/u/volume-subpaths/pv/app/1 ro,relatime - nfs nas.example:/old/pv/file rw,vers=3,nolock,proto=tcp6,sec=sys,local_lock=all,addr=2001:db8::1
44 22 0:52 / ROOT/pods/u/volumes/kubernetes.io~csi/smb/mount rw,relatime - cifs //nas.example/share rw,vers=3.1.1,username=kim,addr=192.0.2.1
45 22 0:53 / ROOT/pods/u/volumes/kubernetes.io~csi/ceph/mount rw,relatime - ceph 192.0.2.1:6789:/volumes rw,name=kim,secret=<hidden>
46 22 0:54 / ROOT/pods/u/volumes/kubernetes.io~csi/s3/mount rw,nosuid - fuse.s3fs s3fs rw,user_id=0
47 22 0:55 / ROOT/host/nfs rw,relatime - nfs4 nas.example:/host rw,vers=4.1,proto=tcp,sec=sys,addr=192.0.2.1
48 47 0:56 / ROOT/host/nfs/deeper rw,relatime - nfs4 nas.example:/host/deeper rw,vers=4.1,proto=tcp,sec=sys,addr=192.0.2.1
49 22 0:57 / ROOT/tls rw - nfs4 nas.example:/x rw,vers=4.2,proto=tcp,sec=sys,xprtsec=tls,addr=192.0.2.1
50 22 0:58 / ROOT/krb rw - nfs4 nas.example:/x rw,vers=4.2,proto=tcp,sec=krb5p,addr=192.0.2.1
51 22 0:59 / ROOT/locks rw - nfs nas.example:/x rw,vers=3,proto=tcp,sec=sys,local_lock=none,addr=192.0.2.1
52 22 0:60 / ROOT/udp rw - nfs nas.example:/x rw,vers=3,nolock,proto=udp,sec=sys,local_lock=all,addr=192.0.2.1
53 22 0:61 / ROOT/proxy rw - nfs4 127.0.0.1:/ rw,vers=4.1,proto=tcp,port=20049,sec=sys,addr=127.0.0.1
54 22 0:62 / ROOT/new rw - nfs4 nas.example:/x rw,vers=4.2,proto=tcp,sec=sys,new-option=3,addr=192.0.2.1
55 22 0:63 / ROOT/ntfs rw - fuseblk /dev/sdb1 rw
56 22 0:64 / ROOT/v2 rw - nfs nas.example:/x rw,vers=2,proto=tcp,sec=sys,addr=192.0.2.1
`

// nodeConfig is for a node with that mount table, whose folders are there.
func nodeConfig(t *testing.T) (c *Config, root string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	table := strings.ReplaceAll(nodeTable, "ROOT", root)
	for line := range strings.Lines(table) {
		if err := os.MkdirAll(strings.Fields(line)[4], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c = defaultConfig()
	c.mountInfo = filepath.Join(root, "mountinfo")
	if err := os.WriteFile(c.mountInfo, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, root
}

// TestNetworkMounts is what the guest mounts in place of what the node has mounted.
func TestNetworkMounts(t *testing.T) {
	c, root := nodeConfig(t)
	if err := os.Symlink(root+"/host/nfs", root+"/link"); err != nil {
		t.Fatal(err)
	}
	const tcp4 = ",relatime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,addr=192.0.2.1"
	const host = "nfs4 nas.example:/host | relatime,vers=4.1,proto=tcp,sec=sys,addr=192.0.2.1 | "
	points := map[string]string{}
	for _, x := range []struct{ source, want string }{
		{"/pods/u/volumes/kubernetes.io~nfs/share", "nfs4 nas.example:/export | nosuid" + tcp4 + " | "},
		{"/pods/u/volume-subpaths/share/app/0", "nfs4 nas.example:/export | nosuid" + tcp4 + " | a b/c"},
		{"/pods/u/volumes/kubernetes.io~csi/pv/mount", "nfs nas.example:/old/pv | ro,relatime,vers=3,rsize=65536,wsize=65536,namlen=255,soft,nolock,proto=tcp6,timeo=50,retrans=3,sec=sys," +
			"mountaddr=2001:db8::1,mountvers=3,mountport=20048,mountproto=tcp6,addr=2001:db8::1 | "},
		{"/pods/u/volume-subpaths/pv/app/1", "nfs nas.example:/old/pv | ro,relatime,vers=3,nolock,proto=tcp6,sec=sys,addr=2001:db8::1 | file"},
		{"/host/nfs", host},
		{"/link", host},
		{"/host/nfs/deeper", "nfs4 nas.example:/host/deeper | relatime,vers=4.1,proto=tcp,sec=sys,addr=192.0.2.1 | "},
	} {
		got, kind, err := c.classify(oci.Mount{Source: root + x.source, Options: []string{"rbind", "rw"}})
		if err != nil || kind != sourceNetwork || got.Type != podclient.MountNetwork {
			t.Errorf("%s: %+v, %v, %v", x.source, got, kind, err)
			continue
		}
		s := got.Storage
		if diff := cmp.Diff(x.want, s.Fstype+" "+s.Source+" | "+strings.Join(s.Options, ",")+" | "+got.SubPath); diff != "" {
			t.Errorf("%s (-want +got):\n%s", x.source, diff)
		}
		mount := s.Source + strings.Join(s.Options, ",")
		if other, ok := points[s.MountPoint]; s.Driver != "nfs" || filepath.Dir(s.MountPoint) != podclient.GuestNetwork || ok && other != mount {
			t.Errorf("%s: driver %s at %s, where %q is", x.source, s.Driver, s.MountPoint, other)
		}
		points[s.MountPoint] = mount
	}
	if len(points) != 5 {
		t.Errorf("%d mount points: %v; a volume and its subPath with the same options share one", len(points), points)
	}
	if got, kind, err := c.classify(oci.Mount{Source: root + "/ntfs", Options: []string{"ro"}}); err != nil || kind != sourceCopied {
		t.Errorf("a disk of the node with FUSE: %+v, %v, %v", got, kind, err)
	}
}

// TestNetworkMountsRefused are those that the guest cannot mount; none is ever copied, read-only or not.
func TestNetworkMountsRefused(t *testing.T) {
	c, root := nodeConfig(t)
	for source, want := range map[string]string{
		"/pods/u/volumes/kubernetes.io~csi/smb/mount":  "is in the file system //nas.example/share (cifs) of the node, which is not copied",
		"/pods/u/volumes/kubernetes.io~csi/ceph/mount": "does not tell the password or key",
		"/pods/u/volumes/kubernetes.io~csi/s3/mount":   "s3fs (fuse.s3fs)",
		"/host":  "has the network file system nas.example:/host (nfs4) mounted within it, at " + root + "/host/nfs",
		"/tls":   "xprtsec=tls needs the program tlshd",
		"/krb":   "sec=krb5p needs the program rpc.gssd",
		"/locks": "rpc.statd, which the VM has not: set nfsvers=4.2 in mountOptions, or nolock",
		"/udp":   "not proto=udp",
		"/proxy": `its server has the address "127.0.0.1"`,
		"/new":   `does not know the mount option "new-option=3"`,
		"/v2":    `not "2": set nfsvers=4.2`,
	} {
		_, kind, err := c.classify(oci.Mount{Source: root + source, Options: []string{"ro"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: kind %v, error %v, want %q", source, kind, err, want)
		}
	}
	if err := os.WriteFile(c.mountInfo, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, kind, err := c.classify(oci.Mount{Source: root + "/host", Options: []string{"ro"}}); err == nil {
		t.Errorf("without a mount table: kind %v and no error", kind)
	}
}
