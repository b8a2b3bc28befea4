// SPDX-License-Identifier: Apache-2.0

//go:build !race

package deploy

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	podvm "github.com/outrigger/outrigger/images/podvm"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// vcsim has data races of its own.
func init() { walkSites["vsphere"] = vsphereSite }

// vsphereSite is a vCenter with one folder for the pods.
func vsphereSite(t *testing.T, w *walk) walkSite {
	center := sim.Start(t)
	fingerprint := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(center.Server.Certificate().Raw)), " ", ":")
	principal := map[string]string{"-principal": sim.User}
	return walkSite{
		user: map[string]string{"GOVC_USERNAME": sim.User, "GOVC_PASSWORD": sim.Password, "POD_USER": sim.User, "POD_PASSWORD": sim.Password},
		means: map[string]string{
			"vcenter.example": center.URL, "DC": sim.Datacenter, "/DC/vm/pods": center.Folder, "Cluster1": sim.Cluster, "datastore1": sim.Datastore,
		},
		shell: fmt.Sprintf(`
openssl() {
  case $1 in
    s_client) [ "$3" = vcenter.example:443 ] && echo certificate ;;
    x509) cat >/dev/null; echo "sha256 Fingerprint=%s" ;;
  esac
}
`, fingerprint),
		image: smallOVA,
		left:  func() []string { return booked(center.World) },
		tools: map[string][]answer{"govc": {
			{words: "folder.create /DC/vm/pods", makes: "folder"},
			{words: "role.create outrigger", makes: "role", says: func(flags map[string]string) (string, error) {
				want := slices.Sorted(maps.Keys(set(listed(t, "vsphere", "privileges"))))
				if got := slices.Sorted(slices.Values(strings.Fields(flags["--line"])[2:])); !slices.Equal(got, want) {
					return "", fmt.Errorf("the role has %q, the page's table %q", got, want)
				}
				return "", nil
			}},
			{words: "permissions.set", flags: principal, makes: "$role"},
			{words: "find /DC/vm/pods -type m", flags: map[string]string{"-name": "podvm-*"}, says: w.nameLines},
			{words: "permissions.remove", flags: principal, removes: "outrigger", says: func(flags map[string]string) (string, error) {
				w.made = slices.DeleteFunc(w.made, func(what string) bool { return what == "ReadOnly" && flags["--last"] == "/DC" })
				return "", nil
			}},
			{words: "role.remove outrigger", removes: "role"},
			{words: "vm.destroy", removes: "image $last"},
			{words: "object.destroy /DC/vm/pods", removes: "folder"},
		}},
	}
}

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// smallOVA writes an OVA with the pod VM's own description and an empty disk.
func smallOVA(path string) error {
	const disk, size = "podvm-disk1.vmdk", 1 << 20
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	for _, f := range []struct {
		name string
		data []byte
	}{{"podvm.ovf", fmt.Appendf(nil, podvm.OVF, disk, size, size)}, {disk, make([]byte, size)}} {
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o600)
}
