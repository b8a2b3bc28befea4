// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/config"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

// TestTheNodeSaysWhereVMsAre: zone and subnet come from the node's labels, VPC and
// resource group from the subnet; what is set wins.
func TestTheNodeSaysWhereVMsAre(t *testing.T) {
	s := newStand(t)
	labels := map[string]string{
		"topology.kubernetes.io/region": sim.Region, "topology.kubernetes.io/zone": sim.Zones[1],
		"ibm-provider.kubernetes.io/subnet-id": sim.Subnets[1], "ibm-cloud.kubernetes.io/subnet-id": "0000-other",
	}
	set := func(more config.Values) config.Values {
		values := config.Values{
			"api-key": sim.APIKey, "iam-service-url": s.cfg.IAM, "ibmcloud-ca-file": s.cfg.CAFile,
			"image-id": sim.Image, "profile-name": s.cfg.Profile, "cluster-id": sim.Cluster,
		}
		for name, text := range more {
			values[name] = text
		}
		return values
	}
	open := func(values config.Values, labels map[string]string) (*Provider, error) {
		m := NewManager()
		m.Set(values)
		m.LoadLabels(labels)
		var err error
		if s.cfg, err = m.Config(); err != nil {
			return nil, err
		}
		s.cfg.VPCURL = s.Server.URL + "/v1"
		return s.open()
	}
	where := func(p *Provider, id string) [5]any {
		return [5]any{
			s.made(t, id, "zone", "name"), s.made(t, id, "primary_network_interface", "subnet", "id"), s.made(t, id, "vpc", "id"),
			s.made(t, id, "resource_group", "id"), s.made(t, id, "primary_network_interface", "security_groups", 0, "id"),
		}
	}
	p, err := open(set(nil), labels)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	want := [5]any{sim.Zones[1], sim.Subnets[1], sim.VPC, sim.ResourceGroup, "r006-group-kube"}
	made := create(t, p, spec(key))
	if got := where(p, made.ID); got != want || p.cfg.region() != sim.Region {
		t.Errorf("made in %v, want %v; region %s", got, want, p.cfg.region())
	}
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	p, err = open(set(config.Values{"zone-name": sim.Zones[0], "primary-subnet-id": sim.Subnets[0], "vpc-id": sim.VPC, "security-group-ids": sim.Group}), labels)
	if err != nil {
		t.Fatal(err)
	}
	want = [5]any{sim.Zones[0], sim.Subnets[0], sim.VPC, nil, sim.Group}
	if got := where(p, create(t, p, spec(key)).ID); got != want {
		t.Errorf("with settings it is made in %v, want %v", got, want)
	}
	delete(labels, "ibm-provider.kubernetes.io/subnet-id")
	if p, err = open(set(nil), labels); err != nil || p.cfg.Subnets[0] != "0000-other" {
		t.Errorf("by the second label: %v", err)
	}
	if err := p.ConfigVerifier(); err == nil || !strings.Contains(err.Error(), "-primary-subnet-id (IBMCLOUD_VPC_SUBNET_ID): 0000-other does not exist") {
		t.Errorf("a subnet that is gone: %v", err)
	}
	_, err = open(set(nil), nil)
	for _, want := range []string{
		"-zone-name (IBMCLOUD_ZONE)", "topology.kubernetes.io/zone",
		"-primary-subnet-id (IBMCLOUD_VPC_SUBNET_ID)", "ibm-provider.kubernetes.io/subnet-id, ibm-cloud.kubernetes.io/subnet-id",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("neither set nor a label: %v lacks %s", err, want)
		}
	}
}
