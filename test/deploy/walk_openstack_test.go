// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

// openstackSite is an OpenStack in which the page's user may do what the page lists.
func openstackSite(t *testing.T, w *walk) walkSite {
	cloud := sim.Start(t)
	w.granted = listed(t, "openstack", "policies")
	rule := map[string]string{"--protocol": "", "--dst-port": "", "--remote-ip": "10.0.0.0/24"}
	return walkSite{
		env:   map[string]string{"OS_CACERT": cloud.CAFile},
		user:  map[string]string{"OS_USERNAME": sim.User, "OS_PASSWORD": sim.Password, "OS_PROJECT_NAME": sim.Project},
		means: map[string]string{"https://keystone.example:5000/v3": cloud.URL},
		image: func(path string) error { return os.WriteFile(path, []byte("QFI\xfb and more"), 0o600) },
		calls: func() []string { return slices.Sorted(maps.Keys(cloud.World.Calls())) },
		left: func() []string {
			return slices.DeleteFunc(booked(cloud.World), func(what string) bool { return strings.Contains(what, "image") })
		},
		tools: map[string][]answer{"openstack": {
			{words: "network show", flags: map[string]string{"-c": "id"}, says: prints(sim.Network + "\n")},
			{words: "security group create", makes: "group " + sim.Group, flags: map[string]string{"-c": "id"}, says: prints(sim.Group + "\n")},
			{words: "security group rule create", flags: rule, says: wantLast(sim.Group)},
			{words: "application credential create", makes: "credential", flags: map[string]string{"-f": "json"},
				says: prints(fmt.Sprintf(`{"id": %q, "name": "outrigger", "secret": %q}`, sim.AppCredID, sim.AppCredSecret))},
			{words: "server list", flags: map[string]string{"--name": "^podvm-", "-c": "Name"}, says: w.nameLines},
			{words: "application credential delete outrigger", removes: "credential"},
			{words: "security group delete", says: wantLast(sim.Group), removes: "group " + sim.Group},
			{words: "image delete", removes: "image $last"},
		}},
	}
}
